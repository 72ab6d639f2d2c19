import { getOrMake } from '../map-entries.ts';

/** Runs at most one piece of work at a time for each key. */
export class SingleRuns<Result> {
  readonly #running = new Map<string, Promise<Result>>();

  /** Runs the work, unless work of this key is running: then returns the promise of that. */
  run(key: string, work: () => Promise<Result>): Promise<Result> {
    return getOrMake(this.#running, key, () => work().finally(() => this.#running.delete(key)));
  }

  /** Returns a promise of the end of the running work of this key, which never rejects; undefined if none runs. */
  settled(key: string): Promise<void> | undefined {
    const ended = (): void => undefined;
    return this.#running.get(key)?.then(ended, ended);
  }
}
