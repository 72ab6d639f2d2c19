import { GatewayError } from '../../errors.ts';
import type { StreamPosition } from '../../protocol/event-stream.ts';
import { backoffMs } from '../rpc/backoff.ts';
import { EventGet, type StreamEnd } from './http-get.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';

/** How the tries to have a stream went lately. */
export interface Tries {
  /** In a row, that got no stream. */
  readonly failed: number;
  /** In a row, that got a stream which soon ended without a word. */
  readonly barren: number;
}

/** What to do when a stream has ended. */
export type Next =
  | { readonly kind: 'again'; readonly delayMs: number; readonly afresh?: boolean }
  /** The upstream has no such stream for us; `reason` where that is not simply its choice. */
  | { readonly kind: 'give-up'; readonly reason?: GatewayError }
  | { readonly kind: 'session-lost' };

/** What decides about a stream that ended: {@link standingNext} or {@link resumedNext}. */
export type Decide = (end: StreamEnd, tries: Tries, position: StreamPosition, inSession: boolean) => Next;

const RETRY_MS = 1_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
const JITTER_MS = 100;
/** A stream that ended sooner than this without an event was not worth having. */
const BARREN_MS = 5_000;
const MAX_FAILED = 5;

/** `backoffMs` of this attempt starts the row 1 s, 2 s, 4 s … 30 s. */
const BACKOFF_SKIP = 2;

/** Statuses of a server that may well give us the stream later. */
function isPassing(status: number): boolean {
  return status === 408 || status === 409 || status === 425 || status === 429 || (status >= 500 && status !== 501);
}

/**
 * How long to wait before coming back, in milliseconds: never less than the server asked for.
 *
 * @param failures in a row.
 * @param random in [0, 1)
 */
export function reconnectMs(retryMs: number | undefined, failures: number, random: number): number {
  const base = Math.min(retryMs ?? RETRY_MS, MAX_TIMER_MS - JITTER_MS);
  const least = failures === 0 ? base : Math.max(base, backoffMs(failures + BACKOFF_SKIP, random));
  return Math.ceil(least + random * Math.min(JITTER_MS, base / 10));
}

function waitMs(end: StreamEnd, failures: number, position: StreamPosition): number {
  const ms = reconnectMs(position.retryMs, failures, Math.random());
  const askedMs = end.kind === 'refused' ? (end.retryAfterMs ?? 0) : 0;
  return Math.min(Math.max(ms, askedMs), MAX_TIMER_MS);
}

/** The stream for what belongs to no request: worth coming back for as long as the session lives. */
export const standingNext: Decide = (end, tries, position, inSession) => {
  const delayMs = waitMs(end, tries.failed + Math.max(0, tries.barren - 1), position);
  switch (end.kind) {
    case 'ended':
    case 'broken':
      return { kind: 'again', delayMs };
    case 'unreadable':
      // The same event would come again.
      return end.error.code === 'too-large'
        ? { kind: 'again', delayMs, afresh: true }
        : { kind: 'give-up', reason: end.error };
    case 'refused': {
      const { status } = end;
      if (status === 404 && inSession) return { kind: 'session-lost' };
      if (status === 204 || status === 404 || status === 405) return { kind: 'give-up' };
      if (isPassing(status)) return { kind: 'again', delayMs };
      if (status === 400 && position.lastEventId !== '') return { kind: 'again', delayMs, afresh: true };
      return { kind: 'give-up', reason: notStreamed(status) };
    }
  }
};

/** The stream of one request that ended before the answer: worth coming back for until it clearly will not come. */
export const resumedNext: Decide = (end, tries, position, inSession) => {
  const delayMs = waitMs(end, tries.failed, position);
  const isHopeless = tries.failed >= MAX_FAILED;
  switch (end.kind) {
    case 'ended':
      // A server may let us poll, with each stream empty until the answer is there.
      return { kind: 'again', delayMs: tries.barren > 1 ? Math.max(delayMs, RETRY_MS / 4) : delayMs };
    case 'broken':
      return isHopeless ? { kind: 'give-up', reason: end.error } : { kind: 'again', delayMs };
    case 'unreadable':
      return { kind: 'give-up', reason: end.error };
    case 'refused':
      if (end.status === 404 && inSession) return { kind: 'session-lost' };
      return isPassing(end.status) && !isHopeless
        ? { kind: 'again', delayMs }
        : { kind: 'give-up', reason: notStreamed(end.status) };
  }
};

function notStreamed(status: number): GatewayError {
  return new GatewayError(
    'upstream-lost',
    { message: `its event stream was refused (HTTP ${status})` },
    new HttpStatusError(status),
  );
}

export interface StreamParts {
  readonly upstream: string;
  readonly messageBytes: number;
  readonly position: StreamPosition;
  readonly decide: Decide;
  /** Sends the GET, with `Last-Event-ID` from the position. */
  open(get: EventGet, position: StreamPosition): void;
  inSession(): boolean;
  /** A message, or a batch of them, as text. */
  onText(text: string): void;
  /** A GET was answered, one way or the other. */
  onAttempt(): void;
  /** Called once, unless it was closed. */
  onEnd(why: Exclude<Next, { kind: 'again' }>): void;
}

/** An event stream had by GET, and had again whenever it ends, until it is closed or there is no hope. */
export class ReconnectingStream {
  readonly #parts: StreamParts;
  readonly #position: StreamPosition;
  #get: EventGet | undefined;
  #timer: NodeJS.Timeout | undefined;
  #tries: Tries = { failed: 0, barren: 0 };
  #isClosed = false;

  constructor(parts: StreamParts) {
    this.#parts = parts;
    this.#position = parts.position;
  }

  /** Opens it after `delayMs`. */
  start(delayMs: number): void {
    if (delayMs === 0) this.#open();
    else this.#timer = setTimeout(() => this.#open(), delayMs);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#get?.cancel();
  }

  /** Reads nothing for this long. Returns false where that changes nothing. */
  pause(forMs: number): boolean {
    return this.#get?.pause(forMs) === true;
  }

  #open(): void {
    const { upstream, messageBytes } = this.#parts;
    const position = this.#position;
    const openedMs = performance.now();
    const openedAt = position.lastEventId;
    let heard = false;
    const get = new EventGet(upstream, position, messageBytes, {
      onEvent: (type, data) => {
        heard = true;
        if (type === 'message' && data !== '') this.#parts.onText(data);
      },
      onOpen: () => this.#parts.onAttempt(),
      onEnd: (end) => {
        this.#parts.onAttempt();
        const isFruitful = heard || position.lastEventId !== openedAt || performance.now() - openedMs > BARREN_MS;
        const { failed, barren } = this.#tries;
        if (!get.isOpen) this.#tries = { failed: failed + 1, barren };
        else this.#tries = { failed: 0, barren: isFruitful ? 0 : barren + 1 };
        this.#onEnd(end);
      },
    });
    this.#get = get;
    this.#parts.open(get, position);
  }

  #onEnd(end: StreamEnd): void {
    if (this.#isClosed) return;
    const next = this.#parts.decide(end, this.#tries, this.#position, this.#parts.inSession());
    if (next.kind !== 'again') {
      this.close();
      this.#parts.onEnd(next);
      return;
    }
    if (next.afresh === true) this.#position.lastEventId = '';
    this.start(Math.max(1, next.delayMs));
  }
}
