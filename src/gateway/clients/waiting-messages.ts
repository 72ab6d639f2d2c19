import { LIMITS } from '../../limits.ts';

/** The start of every notification that the gateway sends. */
const NOTIFICATION = '{"jsonrpc":"2.0","method":';

/** The starts of notifications that name resources, or have text of an upstream. */
const CONTENTS = ['notifications/resources/updated', 'notifications/message'].map(
  (method) => `${NOTIFICATION}${JSON.stringify(method)}`,
);

/** Messages that wait until the client of a session opens a stream. The oldest notifications are dropped first. */
export class WaitingMessages {
  #texts: string[] = [];
  #bytes = 0;
  readonly #onDropped: () => void;

  constructor(onDropped: () => void) {
    this.#onDropped = onDropped;
  }

  /** Adds a message. Returns false if it is dropped itself: only requests are left and take the room, or it is a notification beyond it. */
  add(text: string): boolean {
    // An equal notification has no new content.
    if (this.#texts.includes(text)) return true;
    const bytes = Buffer.byteLength(text);
    this.#texts.push(text);
    this.#bytes += bytes;
    while (this.#isOver) this.#dropOne();
    return this.#texts.at(-1) === text;
  }

  /** Removes all messages and returns them in order. */
  removeAll(): readonly string[] {
    const texts = this.#texts;
    this.#texts = [];
    this.#bytes = 0;
    return texts;
  }

  /** Removes the notifications that say more than that a list has changed. */
  removeContents(): void {
    const kept = this.#texts.filter((text) => !CONTENTS.some((start) => text.startsWith(start)));
    this.removeAll();
    for (const text of kept) this.add(text);
  }

  /** True if a message has to be dropped. A single request may be larger than the room. */
  get #isOver(): boolean {
    const [first = ''] = this.#texts;
    if (this.#texts.length > LIMITS.sessionQueueMessages) return true;
    return this.#bytes > LIMITS.sessionQueueBytes && (this.#texts.length > 1 || first.startsWith(NOTIFICATION));
  }

  /** Drops the oldest notification; the latest request if there is none. */
  #dropOne(): void {
    const notification = this.#texts.findIndex((text) => text.startsWith(NOTIFICATION));
    const [dropped = ''] = this.#texts.splice(notification, 1);
    this.#bytes -= Buffer.byteLength(dropped);
    this.#onDropped();
  }
}
