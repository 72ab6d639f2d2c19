import { type LimitName, LIMITS } from '../../limits.ts';
import type { Outgoing } from '../rpc/transport.ts';

export const INITIALIZED = 'notifications/initialized';

/** Holds messages back until `notifications/initialized` is accepted, because messages on other sockets could overtake it. */
export class HandshakeQueue {
  readonly #post: (message: Outgoing) => void;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  #waiting: Outgoing[] | undefined;

  /** @param onLimit called for each notification or answer that is dropped, because too many messages wait. */
  constructor(post: (message: Outgoing) => void, onLimit?: (limit: LimitName) => void) {
    this.#post = post;
    this.#onLimit = onLimit;
  }

  /** Posts a message, or queues it while `notifications/initialized` is in flight. */
  send(message: Outgoing): void {
    if (this.#waiting !== undefined) {
      // An upstream can ask without end; requests are bounded by those who send them.
      const isDropped = message.id === undefined && this.#waiting.length >= LIMITS.undeliveredMessages;
      if (isDropped) this.#onLimit?.('undeliveredMessages');
      else this.#waiting.push(message);
      return;
    }
    if (message.method === INITIALIZED) this.#waiting = [];
    this.#post(message);
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
    for (const message of waiting ?? []) this.send(message);
  }

  /** Drops the messages that wait. Returns the ids of the requests among them. */
  drop(): readonly number[] {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    return waiting.flatMap(({ id }) => id ?? []);
  }

  forget(id: number): void {
    this.#waiting = this.#waiting?.filter((message) => message.id !== id);
  }
}
