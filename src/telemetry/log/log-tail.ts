import { LIMITS } from '../../limits.ts';

/** Size of the latest part of the log, which is kept in memory. */
export const RECENT_BYTES = 262_144;

/** The latest lines of a log, and the operators that follow it. */
export class LogTail {
  /** Texts of one or more lines, the oldest first. */
  readonly #texts: string[] = [];
  #bytes = 0;
  readonly #followers = new Set<(text: string) => void>();

  /** Adds JSON lines, each with its line break. */
  write(text: string): void {
    for (const follower of this.#followers) follower(text);
    this.#texts.push(text);
    this.#bytes += Buffer.byteLength(text);
    while (this.#bytes > RECENT_BYTES) this.#bytes -= Buffer.byteLength(this.#texts.shift() ?? '');
  }

  /** Returns the latest lines, the oldest first. */
  recent(): readonly string[] {
    return [...this.#texts];
  }

  /** Passes each new text to `receive`. Returns a function that ends it; undefined if too many operators follow. */
  follow(receive: (text: string) => void): (() => void) | undefined {
    if (this.#followers.size >= LIMITS.logFollowers) return undefined;
    // A function of its own, so that one operator can follow twice.
    const follower = (text: string): void => receive(text);
    this.#followers.add(follower);
    return () => {
      this.#followers.delete(follower);
    };
  }
}
