import { Waitlist } from '../../fixtures/servers/http-harness.ts';
import type { ReceivedNotification } from './client.ts';

/** The notifications of one client, in order. */
export class Notifications {
  readonly #notifications = new Waitlist<ReceivedNotification>();

  push(notification: ReceivedNotification): void {
    this.#notifications.push(notification);
  }

  /** Resolves with the first matching notification, past or future. @throws {Error} that names the others. */
  async waitForNotification(
    method: string,
    limitMs: number,
    is: (notification: ReceivedNotification) => boolean = () => true,
  ): Promise<ReceivedNotification> {
    const { promise, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      const methods = this.#notifications.items.map((notification) => notification.method);
      reject(new Error(`${method} did not arrive; received: ${methods.join(', ') || 'nothing'}`));
    }, limitMs);
    try {
      return await Promise.race([
        promise,
        this.#notifications.find((notification) => notification.method === method && is(notification)),
      ]);
    } finally {
      clearTimeout(timer);
    }
  }
}
