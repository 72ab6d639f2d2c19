import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hostileHttp } from '../fixtures/servers/hostile-http.ts';
import { type RunningGateway, startGateway } from './gateway.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/servers/hostile-stdio.ts', import.meta.url));

/** Timeouts that an upstream meets which works, however busy the machine is. */
const PATIENT = { start: '60s', call: '60s', max: '60s', firstByte: '60s' };
/** Timeouts that are short enough for a test to reach them. The lists of these upstreams meet them. */
const SHORT = { ...PATIENT, call: '5s', max: '8s', firstByte: '5s' };

/** The timeouts of the ways that end by one. The others have patient timeouts. */
const TIMEOUTS: Readonly<Record<string, object>> = {
  hang: SHORT,
  'wrong-id': SHORT,
  'half-json': SHORT,
  'never-lists': SHORT,
  'never-starts': { ...PATIENT, start: '5s' },
  'http-endless': SHORT,
  'http-hang': SHORT,
};

/** Less than the endless answers, and more than every valid message of these tests. */
const MESSAGE = '256KiB';

/** The ledgers in which the servers of one test record their actions. */
export class Ledgers {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  file(upstream: string): string {
    return join(this.#dir, `${upstream}.ledger`);
  }

  /** Returns the records of an upstream's processes: the action, and the process that performed it. */
  of(upstream: string): readonly { readonly what: string; readonly pid: number }[] {
    const file = this.file(upstream);
    if (!existsSync(file)) return [];
    const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
    return lines.map((line) => {
      const end = line.lastIndexOf(' ');
      return { what: line.slice(0, end), pid: Number(line.slice(end + 1)) };
    });
  }

  count(upstream: string, what: string): number {
    return this.of(upstream).filter((entry) => entry.what === what).length;
  }
}

/** Returns the config entry of a stdio server that misbehaves in this way. */
export function hostileStdio(
  way: string,
  ledgers: Ledgers,
  timeouts: object = PATIENT,
  env: Readonly<Record<string, string>> = {},
) {
  return { command: process.execPath, args: [FIXTURE, way], env: { LEDGER: ledgers.file(way), ...env }, timeouts };
}

interface HostileGateway extends AsyncDisposable {
  readonly gateway: RunningGateway;
  readonly ledgers: Ledgers;
  /** Returns how often an upstream of any kind ran a tool. */
  calls(upstream: string, tool: string): number;
}

/**
 * Starts a gateway in front of servers that misbehave, each named by the way it does, and one healthy server, `calm`.
 */
export async function startHostile(ways: readonly string[]): Promise<HostileGateway> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-hostile-'));
  const ledgers = new Ledgers(dir);
  const remote = new Map<string, Awaited<ReturnType<typeof hostileHttp>>>();
  const mcpServers: Record<string, Record<string, unknown>> = {};
  for (const way of ways) {
    if (way.startsWith('http-')) {
      const server = await hostileHttp(way);
      remote.set(way, server);
      mcpServers[way] = { url: server.url, timeouts: TIMEOUTS[way] ?? PATIENT };
    } else mcpServers[way] = hostileStdio(way, ledgers, TIMEOUTS[way] ?? PATIENT, { DELAY_MS: '1500' });
  }
  mcpServers['calm'] = hostileStdio('calm', ledgers);
  const gateway = await startGateway({ mcpServers, gateway: { limits: { message: MESSAGE } } });
  return {
    gateway,
    ledgers,
    calls: (upstream, tool) => remote.get(upstream)?.calls(tool) ?? ledgers.count(upstream, `call ${tool}`),
    [Symbol.asyncDispose]: async () => {
      await gateway.stop();
      for (const server of remote.values()) await server[Symbol.asyncDispose]();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
