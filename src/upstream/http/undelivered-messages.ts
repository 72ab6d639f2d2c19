import { LIMITS, type LimitName } from '../../limits.ts';
import { INITIALIZED } from './handshake-queue.ts';
import type { UpstreamPost } from './http-post.ts';

/**
 * Bounds the POSTs of one upstream without an answer: notifications, and answers to requests of the upstream. Each takes a socket until the upstream
 * accepts it, and an upstream can ask without end.
 */
export class UndeliveredMessages {
  readonly #onLimit: (limit: LimitName) => void;
  #count = 0;

  /** @param onLimit called for each message that is dropped. */
  constructor(onLimit: (limit: LimitName) => void = () => undefined) {
    this.#onLimit = onLimit;
  }

  /** Number of messages that the upstream has not accepted. */
  get count(): number {
    return this.#count;
  }

  /** Counts the messages of one connection. */
  join(): UndeliveredPosts {
    return new UndeliveredPosts(
      () => this.#take(),
      (count) => {
        this.#count -= count;
      },
    );
  }

  #take(): boolean {
    if (this.#count >= LIMITS.undeliveredMessages) {
      this.#onLimit('undeliveredMessages');
      return false;
    }
    this.#count++;
    return true;
  }
}

/** The POSTs of one connection that are counted in {@link UndeliveredMessages}. */
export class UndeliveredPosts {
  readonly #posts = new Set<UpstreamPost>();
  readonly #take: () => boolean;
  readonly #release: (count: number) => void;

  constructor(take: () => boolean, release: (count: number) => void) {
    this.#take = take;
    this.#release = release;
  }

  /** Counts a POST before it is sent. Returns false if there are too many, so that it must not be sent. Requests are not counted. */
  add(post: UpstreamPost): boolean {
    // Without this message no other one follows.
    if (post.id !== undefined || post.method === INITIALIZED) return true;
    if (!this.#take()) return false;
    this.#posts.add(post);
    return true;
  }

  remove(post: UpstreamPost): void {
    if (this.#posts.delete(post)) this.#release(1);
  }

  /** Releases all POSTs, after the connection was closed. */
  clear(): void {
    this.#release(this.#posts.size);
    this.#posts.clear();
  }
}
