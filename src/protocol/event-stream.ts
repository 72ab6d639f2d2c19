import { StringDecoder } from 'node:string_decoder';

import { createParser, type EventSourceParser } from 'eventsource-parser';

/** A comment: keeps a connection alive and means nothing. */
export const COMMENT = ':\n\n';

/** Where a reader of an event stream stands, and what it needs to come back. */
export interface StreamPosition {
  /** Id of the last event that had one; empty when there is none. */
  lastEventId: string;
  /** How long the server asked to wait before coming back, in milliseconds. */
  retryMs: number | undefined;
}

/** One event is bigger than we carry. */
export class EventTooLargeError extends Error {
  override readonly name = 'EventTooLargeError';

  constructor(limitChars: number) {
    super(`an event is longer than ${limitChars} characters`);
  }
}

/**
 * Reads the bytes of one event stream, cut anywhere.
 *
 * @see https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
 */
export class EventReader {
  readonly #parser: EventSourceParser;
  #decoder: StringDecoder | undefined;

  /**
   * @param position is kept up to date, also by events without data, before `onEvent` is called.
   * @param limitChars of one event, in UTF-16 units.
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
        // The other complaints are about fields the specification says to ignore.
        if (error.type === 'max-buffer-size-exceeded') throw new EventTooLargeError(limitChars);
      },
    });
  }

  /** @throws {EventTooLargeError} and is of no use afterwards. */
  feed(chunk: Buffer): void {
    this.#parser.feed(this.#decode(chunk));
  }

  #decode(chunk: Buffer): string {
    // Nearly every chunk ends with a line break, and then no character is cut.
    if (this.#decoder === undefined && (chunk.at(-1) ?? 0) < 0x80) return chunk.toString('utf8');
    this.#decoder ??= new StringDecoder('utf8');
    return this.#decoder.write(chunk);
  }
}

export interface EventFields {
  readonly id?: string | undefined;
  readonly event?: string | undefined;
  /** One line of text; empty for an event that only carries an id. */
  readonly data: string;
  readonly retryMs?: number | undefined;
}

const ID = /^[A-Za-z0-9_.-]{1,200}$/;
const TYPE = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * The text of one event. Whatever `data` holds, a reader sees exactly one.
 *
 * @throws {TypeError} when a field could not be read back as it is.
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
