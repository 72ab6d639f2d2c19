import { GatewayError } from '../../errors.ts';
import { EventReader, type StreamPosition } from '../../protocol/event-stream.ts';
import { wireFailure } from './http-failure.ts';
import { isEncoded, mediaType, retryAfterMs } from './http-headers.ts';
import type { ResponseHeaders, WireController, WireHandler } from '../../http1/wire.ts';

/** How one GET of an event stream came to its end. */
export type StreamEnd =
  /** The server ended it. */
  | { readonly kind: 'ended' }
  /** The connection broke, or never came about. */
  | { readonly kind: 'broken'; readonly error: GatewayError }
  | { readonly kind: 'refused'; readonly status: number; readonly retryAfterMs: number | undefined }
  /** It is no event stream, or holds an event beyond the limit. */
  | { readonly kind: 'unreadable'; readonly error: GatewayError };

export interface EventGetEvents {
  /** The server answered with an event stream. */
  onOpen(): void;
  onEvent(type: string, data: string): void;
  /** Called once, unless it was cancelled. */
  onEnd(end: StreamEnd): void;
}

/** One GET of an event stream. */
export class EventGet implements WireHandler {
  readonly #upstream: string;
  readonly #events: EventGetEvents;
  readonly #reader: EventReader;
  #controller: WireController | undefined;
  #isWritten = false;
  #isOpen = false;
  #isOver = false;

  constructor(upstream: string, position: StreamPosition, messageBytes: number, events: EventGetEvents) {
    this.#upstream = upstream;
    this.#events = events;
    this.#reader = new EventReader(position, messageBytes, (type, data) => {
      if (!this.#isOver) events.onEvent(type, data);
    });
  }

  /** Whether the server answered with an event stream. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#controller?.abort(new GatewayError('cancelled', { upstream: this.#upstream }));
  }

  /** Reads nothing for this long. Returns false where that changes nothing. */
  pause(forMs: number): boolean {
    return this.#isOpen && !this.#isOver && this.#controller?.pause(forMs) === true;
  }

  onRequestStart(controller: WireController): void {
    // Unlike abort(), this leaves the socket to the next request.
    if (this.#isOver) throw new GatewayError('cancelled', { upstream: this.#upstream, executed: 'no' });
    this.#controller = controller;
    this.#isWritten = true;
  }

  onResponseStart(_controller: WireController, status: number, headers: ResponseHeaders): void {
    if (status < 200) return;
    const type = mediaType(headers);
    if (status === 204 || status >= 300) {
      this.#end({ kind: 'refused', status, retryAfterMs: retryAfterMs(headers, Date.now()) });
    } else if (type !== 'text/event-stream' || isEncoded(headers)) {
      const what = isEncoded(headers) ? 'a compressed body' : type.slice(0, 80) || 'nothing';
      const message = `upstream "${this.#upstream}" answered ${what} where an event stream was expected`;
      this.#end({
        kind: 'unreadable',
        error: new GatewayError('upstream-protocol', { upstream: this.#upstream, message }),
      });
    } else {
      this.#isOpen = true;
      this.#events.onOpen();
    }
  }

  onResponseData(_controller: WireController, chunk: Buffer): void {
    if (!this.#isOver) this.#reader.feed(chunk);
  }

  onResponseEnd(): void {
    this.#end({ kind: 'ended' });
  }

  onResponseError(_controller: WireController, thrown: Error): void {
    const error = wireFailure(this.#upstream, thrown, this.#isWritten);
    this.#end({ kind: error.code === 'too-large' ? 'unreadable' : 'broken', error });
  }

  #end(end: StreamEnd): void {
    if (this.#isOver) return;
    this.cancel();
    this.#events.onEnd(end);
  }
}
