import { LIMITS, type LimitName } from '../../limits.ts';

/** One connection may have this fraction (1/n) of what its upstream has not accepted. */
const CONNECTION_FRACTION = 2;
/** A connection with fewer and smaller messages than this is not refused for those of others. */
const SMALL = { count: 8, bytes: 65_536 } as const;

/** The messages of one connection that the upstream has not accepted: their number and their size. */
export interface OwnMessages {
  count: number;
  bytes: number;
}

/**
 * Bounds the POSTs of one upstream without an answer: notifications, and answers to requests of the upstream. Each takes a socket until the upstream
 * accepts it, and an upstream can ask without end.
 */
export class UndeliveredMessages {
  readonly #onLimit: (limit: LimitName) => void;
  readonly #all: OwnMessages = { count: 0, bytes: 0 };

  /** @param onLimit called for each message that is dropped. */
  constructor(onLimit: (limit: LimitName) => void = () => undefined) {
    this.#onLimit = onLimit;
  }

  /** Number of messages that the upstream has not accepted. */
  get count(): number {
    return this.#all.count;
  }

  /** Counts a message before it is sent. Returns false if there are too many, so that it must not be sent. */
  take(own: OwnMessages, bytes: number): boolean {
    const all = this.#all;
    const mayExceed = own.count < SMALL.count && own.bytes + bytes <= SMALL.bytes;
    const isFull = (one: OwnMessages, part: number): LimitName | undefined => {
      if (one.count >= LIMITS.undeliveredMessages / part) return 'undeliveredMessages';
      return one.bytes >= LIMITS.undeliveredBytes / part ? 'undeliveredBytes' : undefined;
    };
    const reached = mayExceed ? undefined : (isFull(own, CONNECTION_FRACTION) ?? isFull(all, 1));
    if (reached !== undefined) {
      this.#onLimit(reached);
      return false;
    }
    for (const one of [own, all]) {
      one.count++;
      one.bytes += bytes;
    }
    return true;
  }

  /** Ends the count of a message: the upstream has accepted it, or its connection is closed. */
  release(own: OwnMessages, bytes: number): void {
    for (const one of [own, this.#all]) {
      one.count--;
      one.bytes -= bytes;
    }
  }
}
