import { readdirSync, readlinkSync } from 'node:fs';
import { request } from 'undici';
import * as z from 'zod';
import type { RunningGateway } from './gateway.ts';
import { childrenOf } from './stdio.ts';

/** Environment of a gateway that can be asked for its {@link Traces}. */
export const PROBED = { NODE_OPTIONS: `--import=${import.meta.resolve('./swarm-probe.ts')}` };

/** A look at the whole heap takes a fraction of a second each. */
const PROBE_MS = 30_000;

const GAUGES = [
  'linkspan_sessions',
  'linkspan_processes',
  'linkspan_streams{kind="post"}',
  'linkspan_streams{kind="get"}',
  'linkspan_streams{kind="sse"}',
  'linkspan_requests_in_flight',
];

const told = z.object({ probe: z.int(), alive: z.record(z.string(), z.int()), heapBytes: z.int() });

/** How many there are of what sessions leave behind, by name. */
export type Counts = Readonly<Record<string, number>>;

function readTold(line: string): z.output<typeof told> | undefined {
  if (!line.startsWith('{"probe"')) return undefined;
  return told.parse(JSON.parse(line));
}

/** Open files of a process by kind: `socket`, `pipe`, and the like. */
function openFiles(pid: number): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      const kind = `open ${readlinkSync(`/proc/${pid}/fd/${fd}`).split(':', 1)[0]}`;
      counts[kind] = (counts[kind] ?? 0) + 1;
    } catch {
      // Closed in the meantime.
    }
  }
  return counts;
}

async function gauges(gateway: RunningGateway): Promise<Record<string, number>> {
  // On a socket of its own, so that looking leaves no trace.
  const { body } = await request(`${gateway.operatorUrl}/metrics`, { reset: true });
  const lines = (await body.text()).split('\n');
  return Object.fromEntries(
    GAUGES.map((name) => {
      const line = lines.find((each) => each.startsWith(`${name} `));
      if (line === undefined) throw new Error(`no metric ${name}`);
      return [name, Number(line.slice(name.length))];
    }),
  );
}

/** Looks at a gateway from all sides. */
export class Onlooker {
  readonly #gateway: RunningGateway;
  #probes = 0;

  constructor(gateway: RunningGateway) {
    this.#gateway = gateway;
  }

  /** Its processes and open files, and what its metrics say. */
  async outside(): Promise<Counts> {
    const { pid } = this.#gateway;
    // First, so that the socket of the metrics is not among them.
    const files = openFiles(pid);
    return { ...files, ...(await gauges(this.#gateway)), 'child process': childrenOf(pid).length };
  }

  /** What is left in its memory after a full collection. Stops it for seconds. */
  async inside(): Promise<{ readonly counts: Counts; readonly heapBytes: number }> {
    const number = ++this.#probes;
    process.kill(this.#gateway.pid, 'SIGUSR2');
    const { alive, heapBytes } = await this.#gateway.logging((line) => {
      const found = readTold(line);
      return found?.probe === number ? found : undefined;
    }, PROBE_MS);
    return { counts: alive, heapBytes };
  }
}

/** What there is more of than before. */
export function growth(before: Counts, after: Counts): Counts {
  return Object.fromEntries(
    Object.entries(after)
      .map(([name, count]): [string, number] => [name, count - (before[name] ?? 0)])
      .filter(([, more]) => more > 0),
  );
}
