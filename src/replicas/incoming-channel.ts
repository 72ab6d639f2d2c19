import type { Duplex } from 'node:stream';
import { Channel } from './channel.ts';
import { type ForwardedHead, ForwardedHeadParser } from './forwarded-head.ts';
import { ForwardedRequest } from './forwarded-request.ts';
import { ForwardedResponse } from './forwarded-response.ts';
import { type Frame, FRAME, numberFrame, requestTexts, UNTRUSTED } from './frames.ts';

/** A request of another replica, while it is answered. */
export interface ServedExchange {
  readonly incoming: ForwardedRequest;
  readonly outgoing: ForwardedResponse;
  /** The whole body, if it came with the request. Then `incoming` has none. */
  readonly body: Buffer | undefined;
  /** Answers that nothing was done with the request. Nothing of the response may have been written. */
  refuse(status: number): void;
  /** Runs once, when nothing more of the response will be sent. */
  onEnd: (() => void) | undefined;
}

type Refusal = readonly [status: number, reason: string];

export interface IncomingChannelParts {
  /** Returns whether the key that the other side has proved is still valid. */
  isTrusted(): boolean;
  /** Returns the reason not to handle a request. Called once for each. */
  admit(head: ForwardedHead): Refusal | undefined;
  onRefused(reason: string): void;
  handle(exchange: ServedExchange, head: ForwardedHead): void;
}

/** Requests of one channel at once. A replica passes on no more than it has connections of clients. */
const MAX_EXCHANGES = 100_000;

/** A channel from another replica, for the requests that it passes on. */
export class IncomingChannel {
  readonly #channel: Channel;
  readonly #parts: IncomingChannelParts;
  readonly #parser = new ForwardedHeadParser();
  readonly #exchanges = new Map<number, ServedExchange>();
  #last = 0;

  constructor(socket: Duplex, parts: IncomingChannelParts) {
    this.#parts = parts;
    this.#channel = new Channel(socket, {
      onFrames: (frames) => this.#onFrames(frames),
      onClosed: () => this.#onClosed(),
    });
  }

  #onFrames(frames: readonly Frame[]): void {
    for (let at = 0; at < frames.length; at++) {
      const frame = frames[at];
      if (frame === undefined) return;
      if (frame.kind !== FRAME.request) {
        this.#onFrame(frame);
        continue;
      }
      // Most bodies follow their request at once. They need no stream.
      const next = frames[at + 1];
      const isWhole = next?.kind === FRAME.data && next.exchange === frame.exchange && next.isLast;
      if (isWhole) at++;
      this.#onRequest(frame, isWhole ? next.payload : undefined);
    }
  }

  /** @throws {RangeError} if the number was used before: the other side is broken. */
  #onRequest({ exchange: number, isLast, payload }: Frame, body: Buffer | undefined): void {
    if (number <= this.#last) throw new RangeError('a number of an exchange is used again');
    this.#last = number;
    const isTrusted = this.#parts.isTrusted();
    const texts = isTrusted ? requestTexts(payload) : undefined;
    const head = texts === undefined ? undefined : this.#parser.parse(...texts);
    const refusal = head === undefined ? undefined : this.#refusal(head);
    if (head === undefined || refusal !== undefined) {
      const [status, reason] = isTrusted ? (refusal ?? UNREADABLE_HEAD) : ENDED_KEY;
      this.#parts.onRefused(reason);
      this.#channel.write(numberFrame(FRAME.refused, number, status));
      return;
    }
    const incoming = new ForwardedRequest(head, this.#channel, number);
    const outgoing = new ForwardedResponse(incoming, this.#channel, number, () => {
      this.#exchanges.delete(number);
      incoming.destroy();
      exchange.onEnd?.();
    });
    const refuse = (status: number) => {
      this.#channel.write(numberFrame(FRAME.refused, number, status));
      outgoing.abandon();
    };
    const exchange: ServedExchange = { incoming, outgoing, body, refuse, onEnd: undefined };
    this.#exchanges.set(number, exchange);
    if (isLast) incoming.push(EMPTY, true);
    this.#parts.handle(exchange, head);
  }

  #refusal(head: ForwardedHead): Refusal | undefined {
    return this.#exchanges.size >= MAX_EXCHANGES ? [503, 'too-many'] : this.#parts.admit(head);
  }

  /** @throws {RangeError} if a body exceeds its window. */
  #onFrame({ kind, isLast, exchange: number, payload }: Frame): void {
    const exchange = this.#exchanges.get(number);
    // A ping, or a frame of an exchange that has ended.
    if (exchange === undefined) return;
    switch (kind) {
      case FRAME.data:
        exchange.incoming.push(payload, isLast);
        return;
      case FRAME.window:
        exchange.outgoing.grant(payload.readUInt32BE(0));
        return;
      case FRAME.reset:
        exchange.incoming.destroy();
        exchange.outgoing.abandon();
        return;
      default:
    }
  }

  #onClosed(): void {
    for (const { incoming, outgoing } of this.#exchanges.values()) {
      incoming.destroy();
      outgoing.abandon();
    }
  }
}

const UNREADABLE_HEAD: Refusal = [400, 'envelope'];
/** The refusal of a request whose connection has a key that has ended. Requests that were accepted before go on. */
const ENDED_KEY: Refusal = [UNTRUSTED, 'key'];
const EMPTY = Buffer.alloc(0);
