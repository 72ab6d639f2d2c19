import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { OWN_CHECKOUT } from '../gateway-program.ts';
import { descendantsOf, memory, parentOf, startedWith } from '../process-cost.ts';

/** The variable that distinguishes the processes of one server from those of others. */
export const SERVER_MARK = 'LINKSPAN_BENCH_SERVER';

/** Pinned reference servers among the development dependencies, with one tool of each and its arguments. */
const PACKAGES = [
  { name: '@modelcontextprotocol/server-memory', tool: 'read_graph', args: {} },
  {
    name: '@modelcontextprotocol/server-sequential-thinking',
    tool: 'sequentialthinking',
    args: { thought: 'one', thoughtNumber: 1, totalThoughts: 1, nextThoughtNeeded: false },
  },
  { name: '@modelcontextprotocol/server-filesystem', tool: 'list_allowed_directories', args: {} },
  { name: '@modelcontextprotocol/server-everything', tool: 'echo', args: { message: 'hello' } },
] as const;

export interface NpxServer {
  readonly id: string;
  readonly tool: string;
  readonly toolArguments: object;
  /** The entry in the configuration. */
  readonly entry: object;
}

/** Returns servers started by `npx`, each with data of its own in `dir`. */
export function npxServers(count: number, dir: string): readonly NpxServer[] {
  return Array.from({ length: count }, (_, index) => {
    const { name, tool, args } = PACKAGES[index % PACKAGES.length] ?? PACKAGES[0];
    const id = `s${index}`;
    const data = join(dir, id);
    mkdirSync(data, { recursive: true });
    const extra = name.endsWith('-filesystem') ? [data] : [];
    // `npx` finds the package among those of the checkout, so that nothing is fetched.
    const entry = {
      command: 'npx',
      args: ['-y', name, ...extra],
      cwd: OWN_CHECKOUT,
      env: { [SERVER_MARK]: id, MEMORY_FILE_PATH: join(data, 'memory.json'), npm_config_update_notifier: 'false' },
    };
    return { id, tool, toolArguments: args, entry };
  });
}

/** Counts the servers that start below a gateway, by id. */
export class StartCount implements Disposable {
  readonly #pid: number;
  readonly #timer: NodeJS.Timeout;
  readonly #seen = new Set<number>();
  /** The first process of each start, by server. */
  readonly #starts = new Map<string, number>();

  constructor(gatewayPid: number, intervalMs = 50) {
    this.#pid = gatewayPid;
    this.#timer = setInterval(() => this.look(), intervalMs);
  }

  look(): void {
    for (const pid of descendantsOf(this.#pid)) {
      if (this.#seen.has(pid)) continue;
      const id = startedWith(pid, SERVER_MARK);
      // Between fork and exec a process has the environment of its parent.
      if (id === undefined) continue;
      this.#seen.add(pid);
      if (startedWith(parentOf(pid), SERVER_MARK) !== id) this.#starts.set(id, (this.#starts.get(id) ?? 0) + 1);
    }
  }

  get total(): number {
    return [...this.#starts.values()].reduce((sum, count) => sum + count, 0);
  }

  /** The largest number of starts of one server. */
  get most(): number {
    return Math.max(0, ...this.#starts.values());
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** Returns number and memory of the processes below a gateway. */
export function processFigures(gatewayPid: number): { readonly processes: number; readonly 'PSS MB': number } {
  const pids = descendantsOf(gatewayPid);
  return { processes: pids.length, 'PSS MB': memory(pids).pssMb };
}
