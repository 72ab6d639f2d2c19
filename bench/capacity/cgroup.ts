import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = '/sys/fs/cgroup';

/** The versions of cgroups: the files of a memory limit, and those that tell what came of it. */
const VERSIONS = [
  {
    root: ROOT,
    line: /^0::(.*)$/m,
    limit: 'memory.max',
    swap: 'memory.swap.max',
    peak: 'memory.peak',
    events: 'memory.events',
  },
  {
    root: join(ROOT, 'memory'),
    line: /^\d+:memory:(.*)$/m,
    limit: 'memory.limit_in_bytes',
    swap: 'memory.memsw.limit_in_bytes',
    peak: 'memory.max_usage_in_bytes',
    events: 'memory.oom_control',
  },
] as const;

type Version = (typeof VERSIONS)[number];

/** A cgroup with a limit of memory, below that of this process. */
export class MemoryCgroup implements Disposable {
  readonly #version: Version;
  readonly #dir: string;

  private constructor(version: Version, dir: string) {
    this.#version = version;
    this.#dir = dir;
  }

  /** @throws {Error} if this machine does not allow it. */
  static make(name: string, limitBytes: number): MemoryCgroup {
    const own = readFileSync('/proc/self/cgroup', 'utf8');
    const reasons: string[] = [];
    for (const version of VERSIONS) {
      const [, path] = version.line.exec(own) ?? [];
      const dir = join(version.root, path ?? '', name);
      try {
        if (path === undefined) throw new Error('this process is in none');
        mkdirSync(dir);
        try {
          limitTo(version, dir, limitBytes);
          return new MemoryCgroup(version, dir);
        } catch (thrown) {
          rmdirSync(dir);
          throw thrown;
        }
      } catch (thrown) {
        reasons.push(`${version.root}: ${String(thrown)}`);
      }
    }
    throw new Error(`no cgroup can be made here: ${reasons.join('; ')}`);
  }

  /** The command that enters it, and then starts the command after it. */
  get wrapper(): readonly string[] {
    return ['/bin/sh', '-c', 'echo $$ > "$0" && exec "$@"', join(this.#dir, 'cgroup.procs')];
  }

  get kills(): number {
    return Number(/^oom_kill (\d+)/m.exec(readFileSync(join(this.#dir, this.#version.events), 'utf8'))?.[1] ?? 0);
  }

  get peakBytes(): number {
    return Number(readFileSync(join(this.#dir, this.#version.peak), 'utf8'));
  }

  [Symbol.dispose](): void {
    rmdirSync(this.#dir);
  }
}

/** @throws {Error} if the folder is not that of a cgroup, or its limits cannot be set. */
function limitTo({ limit, swap }: Version, dir: string, bytes: number): void {
  // Elsewhere, writing would make a file.
  if (!existsSync(join(dir, limit))) throw new Error(`there is no ${limit}`);
  writeFileSync(join(dir, limit), String(bytes));
  // The first version limits memory and swap together.
  if (existsSync(join(dir, swap))) writeFileSync(join(dir, swap), swap === 'memory.swap.max' ? '0' : String(bytes));
}
