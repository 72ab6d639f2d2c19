import { readdirSync, readlinkSync } from 'node:fs';
import { request } from 'undici';
import * as z from 'zod';
import type { RunningGateway } from './gateway.ts';
import { PATIENCE_MS } from './patience.ts';
import { childrenOf } from './stdio.ts';

/** The environment of a gateway that can report its {@link Traces}. */
export const PROBED = { NODE_OPTIONS: `--import=${import.meta.resolve('./swarm-probe.ts')}` };

/** Scanning the whole heap takes a fraction of a second per class. */
const GAUGES = [
  'linkspan_sessions',
  'linkspan_processes',
  'linkspan_streams{kind="post"}',
  'linkspan_streams{kind="get"}',
  'linkspan_streams{kind="sse"}',
  'linkspan_requests_in_flight',
];

const report = z.object({ probe: z.int(), alive: z.record(z.string(), z.int()), heapBytes: z.int() });

/** The number of each kind of thing that sessions may leave behind, by name. */
export type Counts = Readonly<Record<string, number>>;

function readReport(line: string): z.output<typeof report> | undefined {
  if (!line.startsWith('{"probe"')) return undefined;
  return report.parse(JSON.parse(line));
}

/** Returns the open files of a process by kind: `socket`, `pipe` and others. */
function openFiles(pid: number): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      const kind = `open ${readlinkSync(`/proc/${pid}/fd/${fd}`).split(':', 1)[0]}`;
      counts[kind] = (counts[kind] ?? 0) + 1;
    } catch {
      // The file was closed in the meantime.
    }
  }
  return counts;
}

async function gauges(gateway: RunningGateway): Promise<Record<string, number>> {
  // Uses a socket of its own, so that the measurement leaves no trace.
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

/** Measures a gateway from outside and inside. */
export class Onlooker {
  readonly #gateway: RunningGateway;
  #probes = 0;

  constructor(gateway: RunningGateway) {
    this.#gateway = gateway;
  }

  /** Returns its processes, open files and metrics. */
  async outside(): Promise<Counts> {
    const { pid } = this.#gateway;
    // Read first, so that the socket of the metrics request is not counted.
    const files = openFiles(pid);
    return { ...files, ...(await gauges(this.#gateway)), 'child process': childrenOf(pid).length };
  }

  /** Returns the live objects after a full collection. Stops the gateway for seconds. */
  async inside(): Promise<{ readonly counts: Counts; readonly heapBytes: number }> {
    const number = ++this.#probes;
    process.kill(this.#gateway.pid, 'SIGPWR');
    const { alive, heapBytes } = await this.#gateway.waitForLog((line) => {
      const found = readReport(line);
      return found?.probe === number ? found : undefined;
    }, PATIENCE_MS);
    return { counts: alive, heapBytes };
  }
}

/** Returns the counts that have grown. */
export function growth(before: Counts, after: Counts): Counts {
  return Object.fromEntries(
    Object.entries(after)
      .map(([name, count]): [string, number] => [name, count - (before[name] ?? 0)])
      .filter(([, more]) => more > 0),
  );
}
