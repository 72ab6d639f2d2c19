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

  /** Resolves when no work of this key that has begun is running. Never rejects. */
  async settled(key: string): Promise<void> {
    await this.#running.get(key)?.catch(() => undefined);
  }
}
