import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';

/** The limit of the memory of this process: a number of bytes, that of its cgroup, or none but that of the heap. */
export type MemoryLimit = number | 'of cgroup' | 'none';

/** The versions of cgroups: their folders, and the names of their files. The first one that has a limit counts. */
const VERSIONS = [
  { mount: 'sys/fs/cgroup', prefix: '0::', limit: 'memory.max', used: 'memory.current', inactive: 'inactive_file' },
  {
    mount: 'sys/fs/cgroup/memory',
    prefix: ':memory:',
    limit: 'memory.limit_in_bytes',
    used: 'memory.usage_in_bytes',
    inactive: 'total_inactive_file',
  },
] as const;

type Version = (typeof VERSIONS)[number];

/** Larger limits are none: the first version of cgroups has one of 2^63. */
const MAX_LIMIT_BYTES = 2 ** 50;
interface Cgroup {
  readonly version: Version;
  readonly dir: string;
}

/** Measures how much memory is used of what may be used. */
export class MemoryMeter implements Disposable {
  readonly #cgroup: Cgroup | undefined;
  readonly #observer: PerformanceObserver;
  /** Bytes of the heap after its last whole collection: between two of them it may be full of garbage. */
  #liveBytes = 0;

  /** @param root the folder in which `/proc` and `/sys` are. Others than `/` are for tests. */
  constructor(root = '/') {
    this.#cgroup = findCgroup(root);
    this.#observer = new PerformanceObserver((list) => {
      if (list.getEntries().some(isWholeCollection)) {
        this.#liveBytes = getHeapStatistics().used_heap_size;
      }
    });
    this.#observer.observe({ entryTypes: ['gc'] });
  }

  /** Returns the share that is used of the heap limit, or of the given limit if that is more; 0 to about 1. */
  usedShare(limit: MemoryLimit): number {
    const heap = this.#liveBytes / getHeapStatistics().heap_size_limit;
    if (limit === 'none') return heap;
    if (limit === 'of cgroup') return Math.max(heap, this.#cgroupShare());
    return Math.max(heap, process.memoryUsage.rss() / limit);
  }

  /** Returns the share of the limit of the cgroup that its processes use, without files that the system can drop; 0 without a limit. */
  #cgroupShare(): number {
    if (this.#cgroup === undefined) return 0;
    const { version, dir } = this.#cgroup;
    const limit = bytesIn(join(dir, version.limit));
    const used = bytesIn(join(dir, version.used));
    if (limit === undefined || used === undefined || limit > MAX_LIMIT_BYTES) return 0;
    return (used - inactiveBytes(join(dir, 'memory.stat'), version.inactive)) / limit;
  }

  [Symbol.dispose](): void {
    this.#observer.disconnect();
  }
}

/** Returns whether an entry is about a collection of the whole heap. Node's types do not declare its members. */
function isWholeCollection(entry: object): boolean {
  const detail: unknown = 'detail' in entry ? entry.detail : undefined;
  const kind = typeof detail === 'object' && detail !== null && 'kind' in detail ? detail.kind : undefined;
  return kind === constants.NODE_PERFORMANCE_GC_MAJOR;
}

/** Returns the cgroup with the least limit, of that of this process and those around it; undefined if none has one. */
function findCgroup(root: string): Cgroup | undefined {
  const own = textOf(join(root, 'proc/self/cgroup'))?.split('\n') ?? [];
  for (const version of VERSIONS) {
    const line = own.find((each) => each.includes(version.prefix));
    if (line === undefined) continue;
    const mount = join(root, version.mount);
    const path = line.slice(line.indexOf(version.prefix) + version.prefix.length);
    const limited = dirsUpTo(mount, path).flatMap((dir) => {
      const bytes = bytesIn(join(dir, version.limit));
      return bytes === undefined || bytes > MAX_LIMIT_BYTES ? [] : [{ dir, bytes }];
    });
    const [least] = limited.toSorted((a, b) => a.bytes - b.bytes);
    if (least !== undefined) return { version, dir: least.dir };
  }
  return undefined;
}

/** Returns the folder of a cgroup and those above it. In a container the path may be that of the host, which is not there. */
function dirsUpTo(mount: string, path: string): readonly string[] {
  const dirs: string[] = [];
  for (let dir = join(mount, path); dir.startsWith(mount); dir = dirname(dir)) if (existsSync(dir)) dirs.push(dir);
  return dirs;
}

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // There are no cgroups here, or not this one any more: then there is no limit.
    return undefined;
  }
}

function bytesIn(file: string): number | undefined {
  const bytes = Number.parseInt(textOf(file) ?? '', 10);
  return Number.isNaN(bytes) ? undefined : bytes;
}

function inactiveBytes(file: string, name: string): number {
  const line = (textOf(file) ?? '').split('\n').find((each) => each.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}
