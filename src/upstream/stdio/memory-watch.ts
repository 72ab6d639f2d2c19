import { memoryOf } from './process-usage.ts';
import type { TaggedProcesses } from './tagged-processes.ts';

/** Time between two measurements. */
const LOOK_MS = 1_000;

interface Watched {
  readonly limitBytes: number;
  readonly onExceeded: (bytes: number) => void;
}

/**
 * Measures the memory of processes that have a limit, about once a second. The system's own limits are of no use here. Those of a process
 * (`setrlimit`) count memory that Node reserves and never uses, and control groups need rights that few gateways have. Works only with
 * `/proc`; elsewhere it finds nothing.
 */
export class MemoryWatch {
  readonly #tagged: Pick<TaggedProcesses, 'usedPidsByTag'>;
  readonly #watched = new Map<string, Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(tagged: Pick<TaggedProcesses, 'usedPidsByTag'>) {
    this.#tagged = tagged;
  }

  /** Calls `onExceeded` once when the processes with this tag use more than `limitBytes` together. Returns a function that ends the watch. */
  add(tag: string, limitBytes: number, onExceeded: (bytes: number) => void): () => void {
    this.#watched.set(tag, { limitBytes, onExceeded });
    this.#schedule();
    return () => {
      this.#watched.delete(tag);
    };
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#watched.size === 0) return;
    this.#timer = setTimeout(() => {
      void this.#look().finally(() => {
        this.#timer = undefined;
        this.#schedule();
      });
    }, LOOK_MS).unref();
  }

  async #look(): Promise<void> {
    const pids = await this.#tagged.usedPidsByTag();
    for (const [tag, { limitBytes, onExceeded }] of this.#watched) {
      const { memoryBytes = 0 } = await memoryOf(pids.get(tag) ?? []);
      if (memoryBytes <= limitBytes || !this.#watched.delete(tag)) continue;
      onExceeded(memoryBytes);
    }
  }
}
