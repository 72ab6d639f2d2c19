import { Waitlist } from '../../fixtures/servers/http-harness.ts';
import type { Heard } from './client.ts';

/** Notifications of one client, in order. */
export class Hearing {
  readonly #heard = new Waitlist<Heard>();

  push(heard: Heard): void {
    this.#heard.push(heard);
  }

  /** The first one of this kind, past or to come. @throws {Error} that names those that came instead. */
  async hear(method: string, limitMs: number, is: (heard: Heard) => boolean = () => true): Promise<Heard> {
    const { promise, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      const methods = this.#heard.items.map((heard) => heard.method);
      reject(new Error(`${method} did not come; heard: ${methods.join(', ') || 'nothing'}`));
    }, limitMs);
    try {
      return await Promise.race([promise, this.#heard.find((heard) => heard.method === method && is(heard))]);
    } finally {
      clearTimeout(timer);
    }
  }
}
