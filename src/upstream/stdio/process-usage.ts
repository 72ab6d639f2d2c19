import { readFile } from 'node:fs/promises';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { TaggedProcesses } from './tagged-processes.ts';

/** What the processes of one upstream take, with all that they have started. */
export interface ProcessUsage {
  readonly processes: number;
  /**
   * Resident memory, where a page that several processes share is divided among them (PSS). Undefined where the system does
   * not tell, or there are too many processes to read.
   */
  readonly memoryBytes: number | undefined;
}

/** A reading is used again within this time. */
const REUSE_MS = 1_000;

/** Reads what the processes of all upstreams take, when asked. Works where `/proc` is; elsewhere nothing is found. */
export class ProcessUsages {
  readonly #tagged: Pick<TaggedProcesses, 'pidsByOwner'>;
  readonly #onLimit: (limit: LimitName) => void;
  #reading: Promise<ReadonlyMap<string, ProcessUsage>> | undefined;
  #readMs = -Infinity;

  constructor(tagged: Pick<TaggedProcesses, 'pidsByOwner'>, onLimit: (limit: LimitName) => void) {
    this.#tagged = tagged;
    this.#onLimit = onLimit;
  }

  /** By upstream id; those without a process are missing. */
  byUpstream(): Promise<ReadonlyMap<string, ProcessUsage>> {
    const nowMs = performance.now();
    if (this.#reading === undefined || nowMs - this.#readMs > REUSE_MS) {
      this.#readMs = nowMs;
      this.#reading = this.#read();
    }
    return this.#reading;
  }

  async #read(): Promise<ReadonlyMap<string, ProcessUsage>> {
    const found = await this.#tagged.pidsByOwner();
    const total = [...found.values()].reduce((sum, pids) => sum + pids.length, 0);
    const isTooMany = total > LIMITS.statusProcesses;
    if (isTooMany) this.#onLimit('statusProcesses');
    const usages = new Map<string, ProcessUsage>();
    for (const [owner, pids] of found) {
      const memoryBytes = isTooMany ? undefined : await memoryOf(pids);
      usages.set(owner, { processes: pids.length, memoryBytes });
    }
    return usages;
  }
}

async function memoryOf(pids: readonly number[]): Promise<number | undefined> {
  const all = await Promise.all(pids.map(pssBytes));
  const known = all.filter((bytes) => bytes !== undefined);
  return known.length === 0 ? undefined : known.reduce((sum, bytes) => sum + bytes, 0);
}

async function pssBytes(pid: number): Promise<number | undefined> {
  // A process may end meanwhile, or belong to another user.
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'latin1').catch(() => '');
  const [, kib] = /^Pss:\s+(\d+) kB/m.exec(text) ?? [];
  return kib === undefined ? undefined : Number(kib) * 1_024;
}
