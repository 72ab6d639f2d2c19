/** Runs at most one piece of work at a time for each key. */
export class SingleRuns<Result> {
  readonly #running = new Map<string, Promise<Result>>();

  /** Runs the work, unless work of this key is running: then returns the promise of that. */
  run(key: string, work: () => Promise<Result>): Promise<Result> {
    const known = this.#running.get(key);
    if (known !== undefined) return known;
    const running = work().finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }

  /** Returns a promise of the end of the running work of this key, which never rejects; undefined if none runs. */
  settled(key: string): Promise<void> | undefined {
    const ended = (): void => undefined;
    return this.#running.get(key)?.then(ended, ended);
  }
}
