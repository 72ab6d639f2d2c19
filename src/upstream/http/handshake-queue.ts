import { type LimitName, LIMITS } from '../../limits.ts';
import type { Outgoing } from '../rpc/transport.ts';

export const INITIALIZED = 'notifications/initialized';

/** Holds messages back until `notifications/initialized` is accepted, because messages on other sockets could overtake it. */
export class HandshakeQueue {
  readonly #post: (message: Outgoing) => void;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  #waiting: Outgoing[] | undefined;
  /** Those without an answer that wait. */
  #waitingBytes = 0;

  /** @param onLimit called for each notification or answer that is dropped, because too many messages wait. */
  constructor(post: (message: Outgoing) => void, onLimit?: (limit: LimitName) => void) {
    this.#post = post;
    this.#onLimit = onLimit;
  }

  /** Posts a message, or queues it while `notifications/initialized` is in flight. */
  send(message: Outgoing): void {
    if (this.#waiting !== undefined) {
      // An upstream can ask without end; requests are bounded by those who send them.
      const limit = message.id === undefined ? this.#limitOf(message, this.#waiting) : undefined;
      if (limit === undefined) {
        this.#waiting.push(message);
        return;
      }
      this.#onLimit?.(limit);
      message.onDropped?.();
      return;
    }
    if (message.method === INITIALIZED) this.#waiting = [];
    this.#post(message);
  }

  /** Returns the limit that a message without an answer exceeds; undefined if it may wait. */
  #limitOf({ text }: Outgoing, { length }: readonly Outgoing[]): LimitName | undefined {
    if (length >= LIMITS.undeliveredMessages) return 'undeliveredMessages';
    if (this.#waitingBytes >= LIMITS.undeliveredBytes) return 'undeliveredBytes';
    this.#waitingBytes += Buffer.byteLength(text);
    return undefined;
  }

  /** Queues messages until `onAccepted`, as while `notifications/initialized` is in flight. */
  hold(): void {
    this.#waiting ??= [];
  }

  /** Marks the end of the delivery of a message, and posts the messages that waited for it. */
  onAccepted(method: string | undefined): void {
    if (method !== INITIALIZED) return;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    this.#waitingBytes = 0;
    for (const message of waiting ?? []) this.send(message);
  }

  /** Drops the messages that wait. Returns the ids of the requests among them. */
  drop(): readonly number[] {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    return waiting.flatMap(({ id }) => id ?? []);
  }

  forget(id: number): 'unsent' | undefined {
    const at = this.#waiting?.findIndex((message) => message.id === id) ?? -1;
    return at >= 0 && this.#waiting?.splice(at, 1) !== undefined ? 'unsent' : undefined;
  }
}
