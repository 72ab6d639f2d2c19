import type { Logger } from 'pino';
import type { MessageError } from '../../protocol/jsonrpc.ts';
import { RepeatedEvents } from '../../telemetry/repeated-events.ts';

/** Logs messages of one upstream that are dropped. Later ones of a kind have few lines, with the number of those before without one (`before`). */
export class DroppedMessages {
  readonly #log: Logger;
  readonly #repeated = new RepeatedEvents();

  /** @param log names the upstream in each line. */
  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param method of the request on whose stream the answer arrived. */
  logUnknownAnswer(method: string | undefined): void {
    const before = this.#repeated.dueAfter('unknown answer', '', performance.now());
    if (before === undefined) return;
    this.#log.warn({ method, before }, 'answer to an unknown request dropped');
  }

  /** @param method of the request on whose stream the message arrived. */
  logMalformed(method: string | undefined, { message, limit }: Error & Partial<Pick<MessageError, 'limit'>>): void {
    // The message of the error may quote the upstream, so that it is no kind: each one could have a line.
    const before = this.#repeated.dueAfter('malformed', limit ?? '', performance.now());
    if (before === undefined) return;
    this.#log.warn({ method, why: message, before }, 'invalid message of the upstream dropped');
  }
}
