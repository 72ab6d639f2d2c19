import { StringDecoder } from 'node:string_decoder';

import { createParser, type EventSourceParser } from 'eventsource-parser';

/** An SSE comment: keeps a connection alive, and readers ignore it. */
export const COMMENT = ':\n\n';

/** The position of a reader in an event stream, from which it can resume. */
export interface StreamPosition {
  /** Id of the last event with an id; empty before the first one. */
  lastEventId: string;
  /** Delay before a reconnect, as the server asked, in milliseconds. */
  retryMs: number | undefined;
}

/** Reports an event that exceeds the limit. */
export class EventTooLargeError extends Error {
  override readonly name = 'EventTooLargeError';

  constructor(limitChars: number) {
    super(`an event is longer than ${limitChars} characters`);
  }
}

/**
 * Parses the bytes of one event stream; chunks may end anywhere.
 *
 * @see https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 */
export class EventReader {
  readonly #parser: EventSourceParser;
  readonly #decoder = new StringDecoder('utf8');

  /**
   * @param position is updated before `onEvent` is called, also by events without data.
   * @param limitChars the largest accepted event, in UTF-16 code units.
   */
  constructor(position: StreamPosition, limitChars: number, onEvent: (type: string, data: string) => void) {
    this.#parser = createParser({
      maxBufferSize: limitChars,
      onId(id) {
        position.lastEventId = id;
      },
      onRetry(retryMs) {
        position.retryMs = retryMs;
      },
      onEvent({ event, data }) {
        if (data.length > limitChars) throw new EventTooLargeError(limitChars);
        onEvent(event ?? 'message', data);
      },
      onError(error) {
        // The other errors concern fields that the specification tells readers to ignore.
        if (error.type === 'max-buffer-size-exceeded') throw new EventTooLargeError(limitChars);
      },
    });
  }

  /** Parses the next bytes. @throws {EventTooLargeError} The reader cannot be used afterwards. */
  feed(chunk: Buffer): void {
    this.#parser.feed(this.#decoder.write(chunk));
  }
}

export interface EventFields {
  readonly id?: string | undefined;
  readonly event?: string | undefined;
  /** One line of text; empty for an event that carries only an id. */
  readonly data: string;
  readonly retryMs?: number | undefined;
}

const ID = /^[A-Za-z0-9_.-]{1,200}$/;
const TYPE = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Returns the text of one event. A reader sees exactly one event, whatever `data` holds.
 *
 * @throws {TypeError} if a field cannot be represented.
 */
export function eventText({ id, event, data, retryMs }: EventFields): string {
  if (data.includes('\n') || data.includes('\r')) throw new TypeError('event data must be one line');
  let text = '';
  if (id !== undefined) {
    if (!ID.test(id)) throw new TypeError('event id has characters outside A-Z a-z 0-9 _ . - or is too long');
    text = `id: ${id}\n`;
  }
  if (event !== undefined) {
    if (!TYPE.test(event)) throw new TypeError('event type has characters outside A-Z a-z 0-9 _ - or is too long');
    text += `event: ${event}\n`;
  }
  if (retryMs !== undefined) {
    if (!Number.isSafeInteger(retryMs) || retryMs < 0) throw new TypeError('retry must be a whole number of ms');
    text += `retry: ${retryMs}\n`;
  }
  return `${text}data: ${data}\n\n`;
}
