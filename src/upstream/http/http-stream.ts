import { MAX_TIMER_MS } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { StreamPosition } from '../../protocol/framing/event-stream.ts';
import type { ResponseHeaders } from '../../http1/wire.ts';
import { backoffMs } from '../rpc/backoff.ts';
import { wasLostBefore } from './http-failure.ts';
import { EventGet, type EventGetHandler, type ReadingOptions, type StreamEnd } from './http-get.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';

export interface Attempts {
  /** Number of successive attempts without a stream. */
  readonly failed: number;
  /** Number of successive streams that ended soon without an event. */
  readonly empty: number;
  /** Number of successive streams that ended soon. */
  readonly short: number;
  /** True if one of all attempts has opened a stream. */
  readonly hasOpened: boolean;
}

/** The decision after the end of a stream. `fromStart`: without `Last-Event-ID`. */
export type NextStep =
  /** `reason`: an operator has to do something, or the stream stays closed. */
  | { readonly kind: 'again'; readonly delayMs: number; readonly fromStart?: boolean; readonly reason?: GatewayError }
  /**
   * The upstream has no such stream for us. `reason` is undefined if the specification allows that; `limit` is the bound that ends the attempts.
   * `hadStream`: it had one before, so that it may be another server now.
   */
  | {
      readonly kind: 'give-up';
      readonly reason?: GatewayError;
      readonly limit?: LimitName;
      readonly hadStream?: boolean;
    }
  | { readonly kind: 'session-lost' };

/** Decides how to continue after the end of a stream: {@link afterServerStreamEnd} or {@link afterResumedStreamEnd}. */
export type NextStepDecider = (
  end: StreamEnd,
  attempts: Attempts,
  position: StreamPosition,
  inSession: boolean,
) => NextStep;

const RETRY_MS = 1_000;
const JITTER_MS = 100;
/** A stream that ends sooner than this counts as short, and without an event as empty. */
const SHORT_MS = 5_000;

/** The shortest pause after two short streams, whatever the server asks. */
const SHORT_PAUSE_MS = 250;

/** The pause after our credentials were refused, which an operator may replace. It doubles up to the longest. */
const REFUSED_MS = 60_000;
const MOST_REFUSED_MS = 900_000;

/**
 * The shortest time from a report to that of a short gap, as lists are valid for so long. Behind a proxy that ends idle streams, a server may refuse each
 * new stream until it has noticed the end of the old one.
 */
const GAP_MS = 300_000;

/** A gap of this length is always reported. */
const LONG_GAP_MS = 15_000;

/** Added to the number of failures, so that `backoffMs` returns 1 s, 2 s, 4 s … 30 s. */
const BACKOFF_SKIP = 2;

/** Returns whether a status is transient, so that a later attempt may succeed. */
function isTransientStatus(status: number): boolean {
  return status === 408 || status === 409 || status === 425 || status === 429 || (status >= 500 && status !== 501);
}

/**
 * Returns the pause before the next attempt, in milliseconds: at least the `retry` of the server.
 *
 * @param retryMs the `retry` field of the event stream, in milliseconds.
 * @param failures number of successive failures.
 * @param random in [0, 1), for the jitter.
 */
export function reconnectMs(retryMs: number | undefined, failures: number, random: number): number {
  const base = Math.min(retryMs ?? RETRY_MS, MAX_TIMER_MS - JITTER_MS);
  const least = failures === 0 ? base : Math.max(base, backoffMs(failures + BACKOFF_SKIP, random));
  return Math.ceil(least + random * Math.min(JITTER_MS, base / 10));
}

function waitMs(end: StreamEnd, failures: number, { short }: Attempts, { retryMs }: StreamPosition): number {
  const ms = reconnectMs(retryMs, failures, Math.random());
  const askedMs = end.kind === 'refused' ? (end.retryAfterMs ?? 0) : 0;
  return Math.min(Math.max(ms, askedMs, short > 1 ? SHORT_PAUSE_MS : 0), MAX_TIMER_MS);
}

/** Decides about the stream for messages without a request: retries as long as the session exists. */
export const afterServerStreamEnd: NextStepDecider = (end, attempts, position, inSession) => {
  const delayMs = waitMs(end, attempts.failed + Math.max(0, attempts.empty - 1), attempts, position);
  switch (end.kind) {
    case 'ended':
    case 'broken':
      return { kind: 'again', delayMs };
    case 'unreadable':
      // A resumed stream would begin with the same event.
      return end.error.code === 'too-large'
        ? { kind: 'again', delayMs, fromStart: true }
        : { kind: 'give-up', reason: end.error };
    case 'refused': {
      const { status } = end;
      // A server without such a stream may answer 404, as any web server does. Then a POST shows whether the session is lost.
      if (status === 404 && inSession && attempts.hasOpened) return { kind: 'session-lost' };
      if (status === 204 || status === 404 || status === 405)
        return { kind: 'give-up', ...(attempts.hasOpened && { hadStream: true }) };
      if (isTransientStatus(status)) return { kind: 'again', delayMs };
      if (status === 401 || status === 403) {
        const refusedMs = Math.min(REFUSED_MS * 2 ** Math.max(0, attempts.failed - 1), MOST_REFUSED_MS);
        return { kind: 'again', delayMs: Math.max(delayMs, refusedMs), reason: streamRefused(status) };
      }
      if (status === 400 && position.lastEventId !== '') return { kind: 'again', delayMs, fromStart: true };
      return { kind: 'give-up', reason: streamRefused(status) };
    }
  }
};

/** Decides about the stream of one request that ended before the answer: retries until the answer cannot be expected any more. */
export const afterResumedStreamEnd: NextStepDecider = (end, attempts, position, inSession) => {
  const delayMs = waitMs(end, attempts.failed, attempts, position);
  const isExhausted = attempts.failed >= LIMITS.resumeAttempts;
  switch (end.kind) {
    case 'ended':
      // Some servers let clients poll: each stream is empty until the answer is available.
      return { kind: 'again', delayMs };
    case 'broken':
      return isExhausted ? { kind: 'give-up', reason: end.error, limit: 'resumeAttempts' } : { kind: 'again', delayMs };
    case 'unreadable':
      return { kind: 'give-up', reason: end.error };
    case 'refused':
      if (end.status === 404 && inSession) return { kind: 'session-lost' };
      if (!isTransientStatus(end.status)) return { kind: 'give-up', reason: streamRefused(end.status) };
      return isExhausted
        ? { kind: 'give-up', reason: streamRefused(end.status), limit: 'resumeAttempts' }
        : { kind: 'again', delayMs };
  }
};

function streamRefused(status: number): GatewayError {
  return new GatewayError(
    'upstream-lost',
    { message: `its event stream was refused (HTTP ${status})` },
    new HttpStatusError(status),
  );
}

export interface ReconnectingStreamParts {
  readonly options: ReadingOptions;
  readonly position: StreamPosition;
  readonly decide: NextStepDecider;
  /** Sends the GET, with the `Last-Event-ID` of the position. */
  open(get: EventGet, position: StreamPosition): void;
  inSession(): boolean;
  /** Receives the text of a message or batch. */
  onText(text: string): void;
  readonly onOversized?: EventGetHandler['onOversized'];
  onHeaders(headers: ResponseHeaders): void;
  /** Called when a GET has opened a stream or has ended. */
  onAttempt?(): void;
  /**
   * Called when a stream is open after a long gap or failed attempts, and goes on from no event. A short gap that the first attempt ends is not
   * reported: a proxy may cause one each minute.
   */
  onGap?(): void;
  /** Called for the first of several refusals with a reason that an operator should know. The stream is opened again later. */
  onRefused?(reason: GatewayError): void;
  /** Called once when the stream is given up, unless it was closed. */
  onEnd(result: Exclude<NextStep, { kind: 'again' }>): void;
}

/** An event stream by GET that is opened again after each end, until it is closed or given up. */
export class ReconnectingStream {
  readonly #parts: ReconnectingStreamParts;
  readonly #position: StreamPosition;
  #get: EventGet | undefined;
  #timer: NodeJS.Timeout | undefined;
  #attempts: Attempts = { failed: 0, empty: 0, short: 0, hasOpened: false };
  #isClosed = false;
  /** The end of the last stream, at first the begin of the attempts. Monotonic ms; -Infinity if it had been lost before. */
  #goneMs = performance.now();
  /** The time of the last report of a gap. Monotonic ms. */
  #gapMs = -Infinity;

  constructor(parts: ReconnectingStreamParts) {
    this.#parts = parts;
    this.#position = parts.position;
  }

  start(delayMs: number): void {
    if (delayMs === 0) this.#open();
    else this.#timer = setTimeout(() => this.#open(), delayMs);
  }

  /** True if the stream was closed or given up. Else it is open, or will be. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Ends the stream without further events. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#get?.cancel();
  }

  /** Stops reading for this long (ms). Returns false if nothing is being read, or reading is already paused. */
  pause(forMs: number): boolean {
    return this.#get?.pause(forMs) === true;
  }

  #open(): void {
    const position = this.#position;
    const openedMs = performance.now();
    const startEventId = position.lastEventId;
    let hasEvent = false;
    const get = new EventGet(this.#parts.options, position, {
      onEvent: (type, data) => {
        hasEvent = true;
        if (type === 'message' && data !== '') this.#parts.onText(data);
      },
      onOversized: this.#parts.onOversized,
      onHeaders: (headers) => this.#parts.onHeaders(headers),
      onOpen: () => {
        this.#parts.onAttempt?.();
        if (startEventId === '') this.#reportGap(openedMs);
      },
      onEnd: (end) => {
        this.#parts.onAttempt?.();
        const hadEvent = hasEvent || position.lastEventId !== startEventId;
        const nowMs = performance.now();
        if (get.isOpen) this.#goneMs = end.kind === 'broken' && wasLostBefore(end.error) ? -Infinity : nowMs;
        this.#attempts = this.#attemptsAfter(get, nowMs - openedMs, hadEvent);
        this.#onEnd(end);
      },
    });
    this.#get = get;
    this.#parts.open(get, position);
  }

  /** @param openedMs the time of the attempt. Some servers send no headers before the first event. */
  #reportGap(openedMs: number): void {
    const isLong = openedMs - this.#goneMs >= LONG_GAP_MS;
    const nowMs = performance.now();
    if (!isLong && (this.#attempts.failed === 0 || nowMs - this.#gapMs < GAP_MS)) return;
    this.#gapMs = nowMs;
    this.#parts.onGap?.();
  }

  #attemptsAfter({ isOpen }: EventGet, livedMs: number, hadEvent: boolean): Attempts {
    const { failed, empty, short } = this.#attempts;
    if (!isOpen) return { ...this.#attempts, failed: failed + 1 };
    const isShort = livedMs <= SHORT_MS;
    return { failed: 0, empty: isShort && !hadEvent ? empty + 1 : 0, short: isShort ? short + 1 : 0, hasOpened: true };
  }

  #onEnd(end: StreamEnd): void {
    if (this.#isClosed) return;
    const next = this.#parts.decide(end, this.#attempts, this.#position, this.#parts.inSession());
    if (next.kind !== 'again') {
      this.close();
      this.#parts.onEnd(next);
      return;
    }
    if (next.reason !== undefined && this.#attempts.failed === 1) this.#parts.onRefused?.(next.reason);
    if (next.fromStart === true) this.#position.lastEventId = '';
    this.start(Math.max(1, next.delayMs));
  }
}
