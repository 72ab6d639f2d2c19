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

/** Serves the requests that another replica passes on over a socket. */
export function serveChannel(socket: Duplex, parts: IncomingChannelParts): void {
  const parser = new ForwardedHeadParser();
  const exchanges = new Map<number, ServedExchange>();
  let last = 0;
  const channel = new Channel(socket, {
    onFrames: (frames) => {
      for (let at = 0; at < frames.length; at++) {
        const frame = frames[at];
        if (frame === undefined) return;
        if (frame.kind !== FRAME.request) {
          onFrame(frame);
          continue;
        }
        // Most bodies follow their request at once. They need no stream.
        const next = frames[at + 1];
        const isWhole = next?.kind === FRAME.data && next.exchange === frame.exchange && next.isLast;
        if (isWhole) at++;
        onRequest(frame, isWhole ? next.payload : undefined);
      }
    },
    onClosed: () => {
      for (const { incoming, outgoing } of exchanges.values()) {
        incoming.destroy();
        outgoing.abandon();
      }
    },
  });

  /** @throws {RangeError} if the number was used before: the other side is broken. */
  function onRequest({ exchange: number, isLast, payload }: Frame, body: Buffer | undefined): void {
    if (number <= last) throw new RangeError('a number of an exchange is used again');
    last = number;
    const isTrusted = parts.isTrusted();
    const texts = isTrusted ? requestTexts(payload) : undefined;
    const head = texts === undefined ? undefined : parser.parse(...texts);
    const refusal = head === undefined ? undefined : refusalOf(head);
    if (head === undefined || refusal !== undefined) {
      const [status, reason] = isTrusted ? (refusal ?? UNREADABLE_HEAD) : ENDED_KEY;
      parts.onRefused(reason);
      channel.write(numberFrame(FRAME.refused, number, status));
      return;
    }
    const incoming = new ForwardedRequest(head, channel, number);
    const outgoing = new ForwardedResponse(incoming, channel, number, () => {
      exchanges.delete(number);
      incoming.destroy();
      exchange.onEnd?.();
    });
    const refuse = (status: number) => {
      channel.write(numberFrame(FRAME.refused, number, status));
      outgoing.abandon();
    };
    const exchange: ServedExchange = { incoming, outgoing, body, refuse, onEnd: undefined };
    exchanges.set(number, exchange);
    if (isLast) incoming.push(EMPTY, true);
    parts.handle(exchange, head);
  }

  function refusalOf(head: ForwardedHead): Refusal | undefined {
    return exchanges.size >= MAX_EXCHANGES ? [503, 'too-many'] : parts.admit(head);
  }

  /** @throws {RangeError} if a body exceeds its window. */
  function onFrame({ kind, isLast, exchange: number, payload }: Frame): void {
    // A ping, or a frame of an exchange that has ended.
    const exchange = exchanges.get(number);
    if (exchange === undefined) return;
    if (kind === FRAME.data) exchange.incoming.push(payload, isLast);
    else if (kind === FRAME.window) exchange.outgoing.grant(payload.readUInt32BE(0));
    else if (kind === FRAME.reset) {
      exchange.incoming.destroy();
      exchange.outgoing.abandon();
    }
  }
}

const UNREADABLE_HEAD: Refusal = [400, 'envelope'];
/** The refusal of a request whose connection has a key that has ended. Requests that were accepted before go on. */
const ENDED_KEY: Refusal = [UNTRUSTED, 'key'];
const EMPTY = Buffer.alloc(0);
