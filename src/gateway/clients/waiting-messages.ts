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

  add(text: string): void {
    // An equal notification has no new content.
    if (this.#texts.includes(text)) return;
    const bytes = Buffer.byteLength(text);
    this.#texts.push(text);
    this.#bytes += bytes;
    const { sessionQueueMessages, sessionQueueBytes } = LIMITS;
    while (this.#texts.length > sessionQueueMessages || (this.#bytes > sessionQueueBytes && this.#texts.length > 1)) {
      this.#dropOldest();
    }
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

  #dropOldest(): void {
    const notification = this.#texts.findIndex((text) => text.startsWith(NOTIFICATION));
    const [dropped = ''] = this.#texts.splice(Math.max(0, notification), 1);
    this.#bytes -= Buffer.byteLength(dropped);
  }
}
