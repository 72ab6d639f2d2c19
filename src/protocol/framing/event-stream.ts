import { StringDecoder } from 'node:string_decoder';

import { oneLine } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { createParser, type EventSourceParser } from 'eventsource-parser';

/** An SSE comment: keeps a connection alive, and readers ignore it. */
export const COMMENT = ':\n\n';

/** The ways in which a blank line ends an event. */
const BLANK_LINES = ['\n\n', '\n\r\n', '\r\r'];

/** Bytes of events without data that count like one comment. */
const IGNORED_BYTES = 1_024;

/** The position of a reader in an event stream, from which it can resume. */
export interface StreamPosition {
  /** Id of the last event with an id; empty before the first one, and after one that is too long. */
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
  readonly #limitChars: number;
  readonly #onIgnored: (() => void) | undefined;
  #pendingBytes = 0;

  /**
   * @param position is updated before `onEvent` is called, also by events without data.
   * @param limitChars the largest accepted event, in UTF-16 code units.
   * @param onLimit called for an event id that is too long. From such an event on, the stream cannot be resumed.
   * @param onIgnored called for each comment, each line that is no known field, and each KiB of events without data.
   */
  constructor(
    position: StreamPosition,
    limitChars: number,
    onEvent: (type: string, data: string) => void,
    onLimit?: (limit: LimitName) => void,
    onIgnored?: () => void,
  ) {
    this.#limitChars = limitChars;
    this.#onIgnored = onIgnored;
    this.#parser = createParser({
      maxBufferSize: limitChars,
      onId(id) {
        const isLong = id.length > LIMITS.upstreamEventIdChars;
        if (isLong) onLimit?.('upstreamEventIdChars');
        position.lastEventId = isLong ? '' : id;
      },
      onRetry(retryMs) {
        position.retryMs = retryMs;
      },
      onEvent: ({ event, data }) => {
        this.#pendingBytes = 0;
        if (data.length > limitChars) throw new EventTooLargeError(limitChars);
        onEvent(event ?? 'message', data);
      },
      onComment: (comment) => {
        this.#pendingBytes = Math.max(0, this.#pendingBytes - comment.length - COMMENT.length);
        onIgnored?.();
      },
      onError(error) {
        // The other errors concern fields that the specification tells readers to ignore.
        if (error.type === 'max-buffer-size-exceeded') throw new EventTooLargeError(limitChars);
        onIgnored?.();
      },
    });
  }

  /** Bytes since the last event, without comments: about the size of the unfinished one. The parser keeps no more than the limit. */
  get pendingBytes(): number {
    return Math.min(this.#pendingBytes, this.#limitChars);
  }

  /** Parses the next bytes. @throws {EventTooLargeError} The reader cannot be used afterwards. */
  feed(chunk: Buffer): void {
    const text = this.#decoder.write(chunk);
    this.#pendingBytes += chunk.length;
    this.#parser.feed(text);
    // The parser does not report the end of an event without data.
    if (this.#pendingBytes === 0 || !BLANK_LINES.some((end) => text.includes(end))) return;
    for (let bytes = this.#pendingBytes; bytes > 0; bytes -= IGNORED_BYTES) this.#onIgnored?.();
    this.#pendingBytes = 0;
  }
}

export interface EventFields {
  readonly id?: string | undefined;
  readonly event?: string | undefined;
  /** One line of text; empty for an event that carries only an id. */
  readonly data: string;
  readonly retryMs?: number | undefined;
}

const EVENT_END = '\n\n';
const ID = /^[A-Za-z0-9_.-]{1,200}$/;
const TYPE = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Returns the text of one event. A reader sees exactly one event, whatever `data` holds.
 *
 * @throws {TypeError} if a field cannot be represented.
 */
export function eventText(fields: EventFields): string {
  const head = headOf(fields);
  const text = withData(head, fields.data);
  if (!isOneLine(text, head)) throw new TypeError('event data must be one line');
  return text;
}

/**
 * Returns the text of an event whose data is a JSON-RPC message. Line breaks, which JSON allows only between tokens, become spaces. The event has
 * the type `message`, which is the default: some clients ignore events without a type.
 *
 * @throws {TypeError} if the id cannot be represented.
 */
export function jsonEventText({ id, data }: Pick<EventFields, 'id' | 'data'>): string {
  const head = headOf({ id, event: 'message', data });
  const text = withData(head, data);
  return isOneLine(text, head) ? text : withData(head, oneLine(data));
}

/** Returns whether the data after the head has no line break. Searches the whole text, since searching joined data would copy it once more. */
function isOneLine(text: string, head: string): boolean {
  return text.indexOf('\n', head.length) === text.length - EVENT_END.length && !text.includes('\r');
}

function withData(head: string, data: string): string {
  return `${head}data: ${data}${EVENT_END}`;
}

/** Returns the lines before the data. */
function headOf({ id, event, retryMs }: EventFields): string {
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
  return text;
}
