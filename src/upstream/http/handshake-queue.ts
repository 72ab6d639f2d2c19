import type { Outgoing } from '../rpc/transport.ts';

export const INITIALIZED = 'notifications/initialized';

/** Holds messages back until `notifications/initialized` is accepted, because messages on other sockets could overtake it. */
export class HandshakeQueue {
  readonly #post: (message: Outgoing) => void;
  #waiting: Outgoing[] | undefined;

  constructor(post: (message: Outgoing) => void) {
    this.#post = post;
  }

  /** Posts a message, or queues it while `notifications/initialized` is in flight. */
  send(message: Outgoing): void {
    if (this.#waiting !== undefined) {
      this.#waiting.push(message);
      return;
    }
    if (message.method === INITIALIZED) this.#waiting = [];
    this.#post(message);
  }

  /** Marks the end of the delivery of a message, and posts the messages that waited for it. */
  onAccepted(method: string | undefined): void {
    if (method !== INITIALIZED) return;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    for (const message of waiting ?? []) this.send(message);
  }

  /** Removes a queued request. */
  forget(id: number): void {
    this.#waiting = this.#waiting?.filter((message) => message.id !== id);
  }
}
