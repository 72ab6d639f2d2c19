/** Cleanups that run once, in the reverse order. Does what `AsyncDisposableStack` does, which Node 22 lacks. */
export class Cleanups {
  #cleanups: (() => unknown)[] = [];

  /** Adds a function that may return a promise. */
  defer(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup);
  }

  /** Adds the disposal of a resource. Returns the resource. */
  use<T extends AsyncDisposable>(resource: T): T {
    this.defer(() => resource[Symbol.asyncDispose]());
    return resource;
  }

  /** Moves the cleanups to another object, which has to run them. */
  move(): Cleanups {
    const moved = new Cleanups();
    moved.#cleanups = this.#cleanups;
    this.#cleanups = [];
    return moved;
  }

  /** Runs all cleanups, each after the one before. @throws the first error, after the last cleanup. */
  async [Symbol.asyncDispose](): Promise<void> {
    const errors: unknown[] = [];
    for (const cleanup of this.move().#cleanups.toReversed()) {
      try {
        await cleanup();
      } catch (thrown) {
        errors.push(thrown);
      }
    }
    if (errors.length > 0) throw errors[0];
  }
}

/**
 * Runs a function that opens things. If it fails, closes what it has opened, unless that was moved.
 *
 * @param onFailed runs before things are closed, which may take seconds.
 */
export async function withCleanups<T>(
  open: (cleanups: Cleanups) => Promise<T>,
  onFailed?: (thrown: unknown) => void,
): Promise<T> {
  await using cleanups = new Cleanups();
  try {
    return await open(cleanups);
  } catch (thrown) {
    onFailed?.(thrown);
    throw thrown;
  }
}
