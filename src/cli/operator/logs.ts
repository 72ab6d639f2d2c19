import { styleText } from 'node:util';
import { upstreamsAnswer } from '../../operator/admin/answers.ts';
import { TerminalLog } from '../../telemetry/terminal-log.ts';
import { askGateway, send, unreachable } from './admin-client.ts';
import { EXIT } from './cli-error.ts';
import { print, printError } from './output.ts';
import type { PrintOptions } from './status.ts';
import type { PortResponse } from './operator-port.ts';
import { findGateway, type RunningGateway } from './running-gateway.ts';

export interface LogsOptions extends PrintOptions {
  readonly follow: boolean;
  /** Only lines about this upstream. */
  readonly upstream?: string;
}

/** Prints the latest lines of the log; with `follow`, further ones until a signal or the end of the gateway. @throws {CliError} */
export async function logs(options: LogsOptions): Promise<number> {
  const target = await findGateway(options);
  if (options.upstream !== undefined) await warnIfUnknown(options.upstream, target);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  process.stdout.on('error', () => stop.abort());
  const response = await send(target, { path: `/log?follow=${options.follow}` }, stop.signal);
  const show = options.json ? print : forPeople();
  try {
    for await (const line of linesOf(response)) if (isAbout(line, options.upstream)) show(`${line}\n`);
    return EXIT.ok;
  } catch (thrown) {
    if (stop.signal.aborted) return EXIT.ok;
    throw unreachable(target, thrown);
  }
}

/** Writes to stderr if the gateway has no such upstream. The log may have lines about it all the same, from before a reload. */
async function warnIfUnknown(id: string, target: RunningGateway): Promise<void> {
  const { upstreams } = await askGateway(target, upstreamsAnswer, { path: '/upstreams' });
  if (upstreams.some((one) => one.id === id)) return;
  const ids = upstreams.map((one) => one.id).join(', ');
  const others = ids === '' ? 'There are none' : `There are: ${ids}`;
  printError(`linkspan: There is no upstream ${JSON.stringify(id)} now. ${others}.\n`);
}

function forPeople(): (text: string) => void {
  const { stdout } = process;
  const terminal = new TerminalLog({
    write: (text) => void stdout.write(text),
    paint: (style, text) => styleText(style, text, { stream: stdout }),
    now: () => performance.now(),
    showsAll: true,
  });
  return (text) => terminal.write(text);
}

async function* linesOf({ body }: PortResponse): AsyncIterable<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}

function isAbout(line: string, upstream: string | undefined): boolean {
  if (line === '') return false;
  return upstream === undefined || line.includes(`"upstream":${JSON.stringify(upstream)}`);
}
