import { GatewayError, upstreamError } from '../../errors.ts';
import type { LimitName } from '../../limits.ts';
import { EventReader, type StreamPosition } from '../../protocol/framing/event-stream.ts';
import type { OversizedMessage } from '../../protocol/framing/oversized-message.ts';
import { wireFailure } from './http-failure.ts';
import { compressionOf, mediaType, redirectLocation, retryAfterMs } from './http-headers.ts';
import type { ReceivedMessage, ReceivingBudget } from '../rpc/receiving-budget.ts';
import type { ResponseHeaders, WireController, WireHandler } from '../../http1/wire.ts';
import { NoEventStreamError } from '../rpc/no-event-stream-error.ts';
import { IgnoredRate } from '../rpc/ignored-rate.ts';

export type StreamEnd =
  | { readonly kind: 'ended' }
  /** The connection broke, or could not be opened. */
  | { readonly kind: 'broken'; readonly error: GatewayError }
  | {
      readonly kind: 'refused';
      readonly status: number;
      readonly retryAfterMs: number | undefined;
      readonly location?: string | undefined;
    }
  /** The response is no event stream, or has an event that is too large. */
  | { readonly kind: 'unreadable'; readonly error: GatewayError };

export interface EventGetHandler {
  /** The response has begun, with any status. */
  onHeaders?(headers: ResponseHeaders): void;
  onOpen?(): void;
  onEvent(type: string, data: string): void;
  /** Called for an event beyond the limit when it has been skipped. Returns false if the stream must end. Default: it must. */
  readonly onOversized?: ((message: OversizedMessage) => boolean) | undefined;
  /** Called once, unless the GET was cancelled. */
  onEnd(end: StreamEnd): void;
}

/** The upstream whose responses are read, and the bounds of what it sends. */
export interface ReadingOptions {
  readonly upstream: string;
  /** The largest accepted message. A reload may change it. */
  readonly messageBytes: number;
  /** Bounds the messages that are being received from all upstreams. */
  readonly receiving: ReceivingBudget;
  /** Called when a message or an event id exceeds a bound, or reading is paused because the upstream sends too much. */
  readonly onLimit?: ((limit: LimitName) => void) | undefined;
}

export class EventGet implements WireHandler {
  readonly #upstream: string;
  readonly #events: EventGetHandler;
  readonly #reader: EventReader;
  /** Counts the event that is being received. */
  readonly #received: ReceivedMessage;
  #controller: WireController | undefined;
  #isWritten = false;
  #isOpen = false;
  #isDone = false;

  constructor(
    { upstream, messageBytes, receiving, onLimit }: ReadingOptions,
    position: StreamPosition,
    events: EventGetHandler,
  ) {
    this.#upstream = upstream;
    this.#events = events;
    const ignored = new IgnoredRate((forMs) => this.pause(forMs), onLimit);
    const onEvent = (type: string, data: string) => {
      if (this.#isDone) return;
      if (type !== 'message' || data === '') ignored.count();
      events.onEvent(type, data);
    };
    this.#reader = new EventReader(position, messageBytes, onEvent, onLimit, () => ignored.count(), events.onOversized);
    this.#received = receiving.join(upstream, {
      hold: () => this.#controller?.hold(),
      resume: () => this.#controller?.resume(),
    });
  }

  /** Returns whether the server has answered with an event stream. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Ends the GET without further events. */
  cancel(): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#controller?.abort(new GatewayError('cancelled', { upstream: this.#upstream }));
    this.#received.update(0);
  }

  /** Stops reading for this long (ms). Returns false if nothing is being read, or reading is already paused. */
  pause(forMs: number): boolean {
    return this.#isOpen && !this.#isDone && this.#controller?.pause(forMs) === true;
  }

  onRequestStart(controller: WireController): void {
    // Unlike abort(), an error here lets the next request use the socket.
    if (this.#isDone) throw new GatewayError('cancelled', { upstream: this.#upstream, executed: 'no' });
    this.#controller = controller;
    this.#isWritten = true;
  }

  onResponseStart(_controller: WireController, status: number, headers: ResponseHeaders): void {
    this.#events.onHeaders?.(headers);
    const type = mediaType(headers);
    if (status === 204 || status >= 300) {
      const location = redirectLocation(status, headers);
      this.#end({ kind: 'refused', status, retryAfterMs: retryAfterMs(headers, Date.now()), location });
    } else if (type !== 'text/event-stream' || compressionOf(headers) !== undefined) {
      const received = compressionOf(headers) !== undefined ? 'a compressed body' : type.slice(0, 80) || 'nothing';
      const event = `answered ${received} where an event stream was expected`;
      const cause = new NoEventStreamError(`HTTP ${status}`);
      const error = upstreamError('upstream-protocol', this.#upstream, event, {}, cause);
      this.#end({ kind: 'unreadable', error });
    } else {
      this.#isOpen = true;
      this.#events.onOpen?.();
    }
  }

  onResponseData(_controller: WireController, chunk: Buffer): void {
    if (this.#isDone) return;
    this.#reader.feed(chunk);
    if (this.#isDone) return;
    this.#received.update(this.#reader.pendingBytes);
  }

  onResponseEnd(): void {
    this.#end({ kind: 'ended' });
  }

  onResponseError(_controller: WireController, thrown: Error): void {
    const error = wireFailure(this.#upstream, thrown, this.#isWritten);
    this.#end({ kind: error.code === 'too-large' ? 'unreadable' : 'broken', error });
  }

  #end(end: StreamEnd): void {
    if (this.#isDone) return;
    this.cancel();
    this.#events.onEnd(end);
  }
}
