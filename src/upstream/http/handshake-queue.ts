import type { Outgoing } from '../rpc/transport.ts';

export const INITIALIZED = 'notifications/initialized';

/** Keeps messages that go by sockets of their own from overtaking `notifications/initialized`. */
export class HandshakeQueue {
  readonly #post: (message: Outgoing) => void;
  #waiting: Outgoing[] | undefined;

  constructor(post: (message: Outgoing) => void) {
    this.#post = post;
  }

  send(message: Outgoing): void {
    if (this.#waiting !== undefined) {
      this.#waiting.push(message);
      return;
    }
    if (message.method === INITIALIZED) this.#waiting = [];
    this.#post(message);
  }

  /** A message of this method has arrived, or never will: what waited for it goes. */
  onAccepted(method: string | undefined): void {
    if (method !== INITIALIZED) return;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    for (const message of waiting ?? []) this.send(message);
  }

  forget(id: number): void {
    this.#waiting = this.#waiting?.filter((message) => message.id !== id);
  }
}
