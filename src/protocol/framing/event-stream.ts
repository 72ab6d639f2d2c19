import { StringDecoder } from 'node:string_decoder';

import { oneLine } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { OversizedMessage } from './oversized-message.ts';
import { createParser, type EventSourceParser } from 'eventsource-parser';

/** An SSE comment: keeps a connection alive, and readers ignore it. */
export const COMMENT = ':\n\n';

/** The ways in which a blank line ends an event. */
const BLANK_LINES = ['\n\n', '\n\r\n', '\r\r'];
const AFTER_BLANK_LINE = new RegExp(`(?<=${BLANK_LINES.join('|')})`);

/** Beginning of an unfinished event that is kept, since the parser does not show it. */
const HEAD_CHARS = 1_024;

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

/** A time in which errors have no stack traces. The parser makes one for each line that is no field, and a trace takes 10 µs. */
class TracesOff {
  #depthBefore: number | undefined;

  begin(): void {
    if (this.#depthBefore !== undefined) return;
    this.#depthBefore = Error.stackTraceLimit;
    Error.stackTraceLimit = 0;
  }

  end(): void {
    if (this.#depthBefore === undefined) return;
    Error.stackTraceLimit = this.#depthBefore;
    this.#depthBefore = undefined;
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
  readonly #onOversized: ((message: OversizedMessage) => boolean) | undefined;
  #pendingBytes = 0;
  /** The beginning of the unfinished event. */
  #head = '';
  /** The last characters that were parsed, since a blank line may be in two chunks. */
  #before = '';
  readonly #tracesOff = new TracesOff();
  /** The event beyond the limit that is being skipped. */
  #oversized: OversizedMessage | undefined;

  /**
   * @param position is updated before `onEvent` is called, also by events without data.
   * @param limitChars the largest accepted event, in UTF-16 code units.
   * @param onLimit called for an event id that is too long. From such an event on, the stream cannot be resumed.
   * @param onIgnored called for each comment, each line that is no known field, and each KiB of events without data.
   * @param onOversized called for an event beyond the limit when it has been skipped. Returns false if the stream cannot go on. Default: it cannot.
   */
  constructor(
    position: StreamPosition,
    limitChars: number,
    onEvent: (type: string, data: string) => void,
    onLimit?: (limit: LimitName) => void,
    onIgnored?: () => void,
    onOversized?: (message: OversizedMessage) => boolean,
  ) {
    this.#limitChars = limitChars;
    this.#onIgnored = onIgnored;
    this.#onOversized = onOversized;
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
        this.#tracesOff.end();
        if (data.length > limitChars) return this.#cut();
        this.#pendingBytes = 0;
        this.#head = '';
        onEvent(event ?? 'message', data);
      },
      onComment: (comment) => {
        this.#pendingBytes = Math.max(0, this.#pendingBytes - comment.length - COMMENT.length);
        onIgnored?.();
      },
      onError: (error) => {
        // The other errors concern fields that the specification tells readers to ignore.
        if (error.type === 'max-buffer-size-exceeded') return this.#cut();
        this.#tracesOff.begin();
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
    const isNearLimit = this.#oversized !== undefined || this.#pendingBytes + chunk.length > this.#limitChars;
    if (!isNearLimit) {
      this.#parse(text, chunk.length);
      if (this.#oversized !== undefined) throw new EventTooLargeError(this.#limitChars);
      return;
    }
    // The parser drops what follows an event beyond the limit, so it gets one event at a time. A blank line may be in two chunks.
    const before = this.#oversized?.tail.slice(-2) ?? '';
    const [first = '', ...others] = `${before}${text}`.split(AFTER_BLANK_LINE);
    for (const part of [first.slice(before.length), ...others]) this.#feedPart(part);
  }

  #feedPart(part: string): void {
    if (this.#oversized === undefined) this.#parse(part, Buffer.byteLength(part));
    const oversized = this.#oversized;
    if (oversized === undefined) return;
    oversized.add(part);
    if (oversized.isEndless) throw new EventTooLargeError(this.#limitChars);
    if (!BLANK_LINES.some((end) => oversized.tail.endsWith(end))) return;
    this.#oversized = undefined;
    if (this.#onOversized?.(oversized) !== true) throw new EventTooLargeError(this.#limitChars);
  }

  /** Begins to skip the unfinished event. */
  #cut(): void {
    if (this.#onOversized === undefined) throw new EventTooLargeError(this.#limitChars);
    this.#oversized = new OversizedMessage(this.#limitChars);
    this.#oversized.add(this.#head);
  }

  #parse(text: string, bytes: number): void {
    this.#pendingBytes += bytes;
    try {
      this.#parser.feed(text);
    } finally {
      this.#tracesOff.end();
    }
    if (this.#oversized !== undefined) {
      this.#parser.reset();
      this.#pendingBytes = 0;
      this.#head = '';
      this.#before = '';
      return;
    }
    const joint = `${this.#before}${text.slice(0, 2)}`;
    const end = endOfEvents(text) || Math.max(0, endOfEvents(joint) - this.#before.length);
    this.#before = text.length < 2 ? joint.slice(-2) : text.slice(-2);
    if (end > 0) this.#head = '';
    if (this.#head.length < HEAD_CHARS) this.#head += text.slice(end, end + HEAD_CHARS);
    if (end === 0) return;
    // The parser does not report the end of an event without data.
    const rest = text.length - end;
    for (let ignored = this.#pendingBytes - rest; ignored > 0; ignored -= IGNORED_BYTES) this.#onIgnored?.();
    this.#pendingBytes = rest;
  }
}

/** Returns where the last event ends that ends in this text; 0 if none does. */
function endOfEvents(text: string): number {
  if (text.endsWith('\n\n') || text.endsWith('\n\r')) return text.length;
  const ends = BLANK_LINES.map((end) => {
    const at = text.lastIndexOf(end);
    return at < 0 ? 0 : at + end.length;
  });
  return Math.max(...ends);
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
