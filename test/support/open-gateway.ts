import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { serve } from '../../src/compose/serve.ts';
import { loadConfig } from '../../src/config/load.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import { complete } from './gateway.ts';

type Members = Readonly<Record<string, unknown>>;

/** The whole gateway in the process of the test, with real sockets on both sides and real child processes. */
export interface OpenGateway extends AsyncDisposable {
  /** URL of the merged endpoint. */
  readonly url: string;
  /** Origin of the operator's port. */
  readonly operatorUrl: string | undefined;
  /** The config file. */
  readonly file: string;
  /** Returns the text of `/metrics`. */
  metrics(): Promise<string>;
  /** The log: one JSON object with its line break each. */
  readonly lines: readonly string[];
  /** Stops the gateway as SIGTERM does. Disposing it does the same. */
  stop(): Promise<void>;
}

/** @param mcpServers as in a config file. */
export async function openGateway(
  mcpServers: Readonly<Record<string, Members>>,
  own: Members = {},
): Promise<OpenGateway> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-open-'));
  // A start that fails leaves nothing behind.
  await using starting = new AsyncDisposableStack();
  starting.defer(() => rm(dir, { recursive: true, force: true }));
  const file = join(dir, 'config.json');
  await writeFile(file, JSON.stringify(complete({ mcpServers, gateway: { logLevel: 'info', ...own } }, dir)));
  const load = () => loadConfig(file, { env: process.env });
  const loaded = await load();
  const lines: string[] = [];
  // One write may have several lines.
  const write = (text: string) => void lines.push(...text.split(/(?<=\n)/));
  const log = createLogger(loaded.config.logLevel, { write });
  const running = await serve(loaded, log, { load, preview: load });
  const cleanup = starting.move();
  let stopped: Promise<void> | undefined;
  const stop = () => (stopped ??= running.stop());
  return {
    url: running.url,
    operatorUrl: running.operatorUrl,
    file,
    metrics: async () => (await fetch(`${running.operatorUrl}/metrics`)).text(),
    lines,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
      await cleanup.disposeAsync();
    },
  };
}
