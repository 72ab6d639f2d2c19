import { readFile } from 'node:fs/promises';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { TaggedProcesses } from './tagged-processes.ts';

/** The number and memory of the processes of one upstream, including those that they have started. */
export interface ProcessUsage {
  readonly processes: number;
  /** Memory of all processes together; undefined if it cannot be read. */
  readonly memoryBytes: number | undefined;
  /** The way of measuring the memory, or the reason why it is unknown, as a sentence. */
  readonly memoryNote: string;
}

/** A result is reused within this time. */
const REUSE_MS = 1_000;

/** Reads the number and memory of the processes of all upstreams. Works only with `/proc`; elsewhere it finds none. */
export class ProcessUsages {
  readonly #tagged: Pick<TaggedProcesses, 'pidsByUpstream'>;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #procDir: string;
  #reading: Promise<ReadonlyMap<string, ProcessUsage>> | undefined;
  #readMs = -Infinity;

  /** @param procDir the directory in which the system shows processes. */
  constructor(tagged: Pick<TaggedProcesses, 'pidsByUpstream'>, onLimit: (limit: LimitName) => void, procDir = '/proc') {
    this.#tagged = tagged;
    this.#procDir = procDir;
    this.#onLimit = onLimit;
  }

  /** Resolves with the usage by upstream id, without upstreams that have no process. */
  byUpstream(): Promise<ReadonlyMap<string, ProcessUsage>> {
    const nowMs = performance.now();
    if (this.#reading === undefined || nowMs - this.#readMs > REUSE_MS) {
      this.#readMs = nowMs;
      this.#reading = this.#read();
    }
    return this.#reading;
  }

  async #read(): Promise<ReadonlyMap<string, ProcessUsage>> {
    const found = await this.#tagged.pidsByUpstream();
    const total = [...found.values()].reduce((sum, pids) => sum + pids.length, 0);
    const isAboveLimit = total > LIMITS.statusProcesses;
    if (isAboveLimit) this.#onLimit('statusProcesses');
    const usages = new Map<string, ProcessUsage>();
    for (const [upstream, pids] of found) {
      const memory = isAboveLimit ? TOO_MANY : await memoryOf(pids, this.#procDir);
      usages.set(upstream, { processes: pids.length, ...memory });
    }
    return usages;
  }
}

type Memory = Omit<ProcessUsage, 'processes'>;

const TOO_MANY: Memory = {
  memoryBytes: undefined,
  memoryNote: `unknown: not read, as there are more than ${LIMITS.statusProcesses} processes`,
};
const UNREADABLE: Memory = { memoryBytes: undefined, memoryNote: 'unknown: the system does not let us read it' };

/** The files in which the system shows the memory of a process, the best first. */
const SOURCES = [
  { file: 'smaps_rollup', line: /^Pss:\s+(\d+) kB/m, note: 'PSS: a page that processes share is divided among them' },
  // Every user can read this file, and kernels older than 4.14 have it too.
  { file: 'status', line: /^VmRSS:\s+(\d+) kB/m, note: 'RSS: a page that processes share counts for each' },
] as const;

/** Resolves with the memory of the readable processes together. A process may end in the meantime. */
export async function memoryOf(pids: readonly number[], procDir = '/proc'): Promise<Memory> {
  for (const { file, line, note } of SOURCES) {
    const read = await Promise.all(pids.map((pid) => readBytes(`${procDir}/${pid}/${file}`, line)));
    const known = read.filter((bytes) => bytes !== undefined);
    if (known.length > 0) return { memoryBytes: known.reduce((sum, bytes) => sum + bytes, 0), memoryNote: note };
  }
  return UNREADABLE;
}

async function readBytes(file: string, line: RegExp): Promise<number | undefined> {
  const text = await readFile(file, 'latin1').catch(() => '');
  const [, kib] = line.exec(text) ?? [];
  return kib === undefined ? undefined : Number(kib) * 1_024;
}
