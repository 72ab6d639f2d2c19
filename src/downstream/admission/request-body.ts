import { isUtf8 } from 'node:buffer';
import type { ClientRequest, ClientResponse } from '../../gateway/front/client-http.ts';
import { LIMITS } from '../../limits.ts';
import type { BodyBudget } from '../memory/body-budget.ts';
import { withoutByteOrderMark } from '../../protocol/framing/byte-order-mark.ts';

export type RequestBody =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'not-text' }
  /** It has more bytes than a body may have, or than its principal may ever have in the budget. */
  | { readonly kind: 'too-large' }
  /** The budget for unfinished bodies is used up. */
  | { readonly kind: 'no-room' }
  /** No byte arrived for too long. */
  | { readonly kind: 'stalled' }
  /** The client disconnected before the end. */
  | { readonly kind: 'gone' };

export interface BodyLimits {
  readonly limitBytes: number;
  readonly budget: BodyBudget;
  /** The principal whose budget the body uses. */
  readonly principal: string;
}

/** The longest time that the connection stays open after a refusal, so that the client can read the answer. */
const LINGER_MS = 500;
/** The most bytes that are read and dropped meanwhile. */
const LINGER_BYTES = 67_108_864;

const EMPTY = Buffer.alloc(0);
const FIRST_BYTES = 4_096;

function toText(bytes: Buffer): RequestBody {
  return isUtf8(bytes) ? { kind: 'text', text: withoutByteOrderMark(bytes.toString('utf8')) } : { kind: 'not-text' };
}

function ignore(): void {}

/** A body in several chunks, in one buffer: many small chunks take far more memory than their bytes. */
class PartialBody {
  readonly #limits: BodyLimits;
  readonly #timer: NodeJS.Timeout;
  #buffer = EMPTY;
  #length = 0;

  constructor(limits: BodyLimits, onStall: () => void) {
    this.#limits = limits;
    this.#timer = setTimeout(onStall, LIMITS.bodyStallMs);
    this.#timer.unref();
  }

  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  /** Appends a chunk. Returns false if the budget has no room for it. */
  add(chunk: Buffer): boolean {
    this.#timer.refresh();
    const needed = this.#length + chunk.length;
    if (needed > this.#buffer.length && !this.#grow(needed)) return false;
    chunk.copy(this.#buffer, this.#length);
    this.#length = needed;
    return true;
  }

  /** Releases its bytes to the budget. */
  release(): void {
    clearTimeout(this.#timer);
    this.#limits.budget.release(this.#limits.principal, this.#buffer.length);
    this.#buffer = EMPTY;
  }

  #grow(neededBytes: number): boolean {
    const { limitBytes, budget, principal } = this.#limits;
    const doubled = Math.max(neededBytes, FIRST_BYTES, 2 * this.#buffer.length);
    const capacity = Math.max(neededBytes, Math.min(doubled, limitBytes, budget.principalBytes));
    if (!budget.reserve(principal, capacity - this.#buffer.length)) return false;
    const grown = Buffer.allocUnsafeSlow(capacity);
    this.#buffer.copy(grown, 0, 0, this.#length);
    this.#buffer = grown;
    return true;
  }
}

/**
 * Reads a body of at most `limitBytes`, and calls `take` once.
 *
 * @param announced the Content-Length header, if present.
 */
export function readBody(
  incoming: ClientRequest,
  limits: BodyLimits,
  announced: string | undefined,
  take: (body: RequestBody) => void,
): void {
  const { limitBytes } = limits;
  if (announced !== undefined && Number(announced) > limitBytes) {
    take({ kind: 'too-large' });
    return;
  }
  // No event follows if the client has disconnected already, even after its whole body.
  if (incoming.destroyed) {
    take({ kind: 'gone' });
    return;
  }
  let only: Buffer | undefined;
  let partial: PartialBody | undefined;
  let bytes = 0;
  // A flag is cheaper than removing the listeners.
  let isDone = false;
  const finish = (body: RequestBody): void => {
    isDone = true;
    partial?.release();
    take(body);
  };
  const refuse = (kind: 'too-large' | 'no-room' | 'stalled'): void => {
    incoming.pause();
    finish({ kind });
  };
  const refuseForRoom = (): void => {
    const fits = Math.max(bytes, Number(announced ?? 0)) <= limits.budget.principalBytes;
    refuse(fits ? 'no-room' : 'too-large');
  };
  const begin = (first: Buffer): boolean => {
    partial = new PartialBody(limits, () => {
      limits.budget.events.onStalled();
      refuse('stalled');
    });
    return partial.add(first);
  };
  incoming.on('data', (chunk: Buffer) => {
    if (isDone) return;
    bytes += chunk.length;
    if (bytes > limitBytes) refuse('too-large');
    else if (partial !== undefined) {
      if (!partial.add(chunk)) refuseForRoom();
    } else if (only === undefined) {
      only = chunk;
      // Most bodies are one chunk, and need no budget.
      if (Number(announced) !== bytes && !begin(chunk)) refuseForRoom();
    }
  });
  incoming.on('end', () => {
    if (!isDone) finish(toText(partial?.bytes ?? only ?? EMPTY));
  });
  incoming.on('close', () => {
    if (!isDone) finish({ kind: 'gone' });
  });
  // A `close` event follows. An error without a listener would end the process.
  incoming.on('error', ignore);
}

/**
 * Refuses a request whose body is still arriving, and closes the connection after a delay. Closing it with unread bytes resets it, and the
 * reset can overtake the answer.
 */
export function refuseBody(
  incoming: ClientRequest,
  outgoing: ClientResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  outgoing.writeHead(status, {
    ...headers,
    connection: 'close',
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  outgoing.write(text);
  let bytes = 0;
  const close = (): void => {
    clearTimeout(timer);
    outgoing.end();
  };
  const timer = setTimeout(close, LINGER_MS);
  timer.unref();
  incoming.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > LINGER_BYTES) close();
  });
  incoming.on('end', close);
  incoming.on('close', close);
  incoming.resume();
}
