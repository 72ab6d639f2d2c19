import type { Duplex } from 'node:stream';
import { connect, type ConnectionOptions } from 'node:tls';
import { GatewayError } from '../errors.ts';
import type { InternalAddress } from './internal-address.ts';
import { BodyReceiver, BodySender } from './body-window.ts';
import { Channel } from './channel.ts';
import {
  bareFrame,
  type Frame,
  FRAME,
  MAX_EXCHANGE,
  MAX_FRAME_BYTES,
  requestFrame,
  type ForwardedResponseHead,
  responseParts,
  UNTRUSTED,
} from './frames.ts';
import type { InternalKey } from './internal-keys.ts';
import { CHANNEL_PROTOCOL, INTERNAL_TLS } from './internal-tls.ts';

const CONNECT_MS = 2_000;
/** The time in which a live replica answers a ping. */
const PING_MS = 2_000;
/** A replica that was heard within this time is not asked whether it is alive. */
const FRESH_MS = 100;
const TCP_PROBE_MS = 30_000;

/** Receives the outcome of a request that is passed on. The last call is that of a last piece, of `onRefused` or of `onBroken`. */
export interface ExchangeHandler {
  /** Receives the head of the response with the beginning of its body. */
  onResponse(head: ForwardedResponseHead, piece: Buffer, isLast: boolean): void;
  onData(piece: Buffer, isLast: boolean): void;
  /** Called if the other replica did nothing with the request. */
  onRefused(status: number): void;
  /** Called if the response cannot be completed. Whether the request was handled is unknown. */
  onBroken(): void;
  /** Called when the body of the request may go on. */
  onDrained?(): void;
}

/** One request on a channel. */
export class ChannelExchange {
  readonly body: BodySender;
  readonly received: BodyReceiver;
  readonly handler: ExchangeHandler;
  readonly #reset: (exchange: ChannelExchange) => void;
  readonly number: number;

  constructor(channel: Channel, number: number, handler: ExchangeHandler, reset: (exchange: ChannelExchange) => void) {
    this.number = number;
    this.handler = handler;
    this.#reset = reset;
    this.received = new BodyReceiver(channel, number);
    this.body = new BodySender(channel, number, () => handler.onDrained?.());
  }

  /** Ends the exchange because the client has gone. The handler is not called any more. */
  reset(): void {
    this.#reset(this);
  }
}

/** Returns the failure of a request that {@link OutgoingChannel.begin} does not send. */
export function headTooLarge(): GatewayError {
  const message = 'the token claims and headers are too large to be passed on to the process that has this';
  return new GatewayError('too-large', { message, advice: 'use a token with fewer claims', executed: 'no' });
}

/** A channel to another replica, for the requests of this one. */
export class OutgoingChannel {
  /** The id of the key that both sides have proved. */
  readonly keyId: string;
  readonly #channel: Channel;
  readonly #exchanges = new Map<number, ChannelExchange>();
  #last = 0;
  #isRetired = false;

  constructor(socket: Duplex, keyId: string) {
    this.keyId = keyId;
    this.#channel = new Channel(socket, {
      onFrames: (frames) => {
        for (const frame of frames) this.#onFrame(frame);
      },
      onClosed: () => this.#onClosed(),
    });
  }

  /** Connects to a replica. Resolves with `refused` if it does not have this key, and with undefined if it cannot be reached. */
  static async open(
    address: InternalAddress,
    { id, key }: InternalKey,
  ): Promise<OutgoingChannel | 'refused' | undefined> {
    const options: ConnectionOptions = {
      ...INTERNAL_TLS,
      ...address,
      ALPNProtocols: [CHANNEL_PROTOCOL],
      pskCallback: () => ({ psk: key, identity: id }),
      // Only the pre-shared key proves the identity. A server may ignore it and send a certificate, which proves nothing here.
      ca: [],
      rejectUnauthorized: true,
      checkServerIdentity: () => new Error('the server has not proved the key'),
    };
    const { promise, resolve } = Promise.withResolvers<OutgoingChannel | 'refused' | undefined>();
    const socket = connect(options);
    const timer = setTimeout(() => fail(), CONNECT_MS);
    socket.on('error', (error: NodeJS.ErrnoException) =>
      fail(error.code?.includes('HANDSHAKE_FAILURE') === true ? 'refused' : undefined),
    );
    socket.on('close', () => fail());
    socket.once('secureConnect', () => {
      // In TLS 1.3 a handshake with a pre-shared key counts as a reused session (RFC 8446 §2.2).
      if (!socket.isSessionReused() || socket.alpnProtocol !== CHANNEL_PROTOCOL) return fail();
      clearTimeout(timer);
      socket.setNoDelay(true);
      socket.setKeepAlive(true, TCP_PROBE_MS);
      return resolve(new OutgoingChannel(socket, id));
    });
    function fail(outcome?: 'refused'): void {
      clearTimeout(timer);
      socket.destroy();
      resolve(outcome);
    }
    return await promise;
  }

  /** Returns whether further requests can be sent. */
  get isUsable(): boolean {
    return !this.#isRetired && !this.#channel.isClosed;
  }

  /** Returns whether requests may be in flight. */
  get isOpen(): boolean {
    return !this.#channel.isClosed;
  }

  /** Returns whether the other replica was heard just now. A request to one that is stopped would have an unknown outcome. */
  isFresh(nowMs: number): boolean {
    return nowMs - this.#channel.heardMs < FRESH_MS;
  }

  /** Asks whether the other replica is alive. */
  async isAlive(): Promise<boolean> {
    return await this.#channel.isAnswering(PING_MS);
  }

  /** Begins a request. Sends nothing and returns undefined if its head is too large. @param isLast whether it has no body. */
  begin(sender: string, forwarded: string, isLast: boolean, handler: ExchangeHandler): ChannelExchange | undefined {
    const number = this.#last + 1;
    const frame = requestFrame(number, isLast, sender, forwarded);
    if (frame.length > MAX_FRAME_BYTES) return undefined;
    this.#last = number;
    // The channel makes room for another one, because numbers are never used twice.
    if (number === MAX_EXCHANGE) this.#isRetired = true;
    const exchange = new ChannelExchange(this.#channel, number, handler, (gone) => this.#reset(gone));
    this.#exchanges.set(number, exchange);
    this.#channel.write(frame);
    // It may have closed since the caller looked it up. The caller needs the exchange first.
    if (this.#channel.isClosed) setImmediate(() => this.#onClosed());
    return exchange;
  }

  /** Takes no further requests, and closes when those in flight have ended. */
  retire(): void {
    this.#isRetired = true;
    this.#closeIfDone();
  }

  /** Ends all requests: their outcome is unknown. */
  destroy(): void {
    this.#channel.destroy();
  }

  #reset(exchange: ChannelExchange): void {
    if (!this.#end(exchange)) return;
    this.#channel.write(bareFrame(FRAME.reset, exchange.number));
  }

  /** Returns false if the exchange has ended already. */
  #end(exchange: ChannelExchange): boolean {
    exchange.body.close();
    if (!this.#exchanges.delete(exchange.number)) return false;
    this.#closeIfDone();
    return true;
  }

  #closeIfDone(): void {
    if (!this.#isRetired || this.#exchanges.size > 0) return;
    setImmediate(() => {
      // A request that had looked the channel up before may have begun.
      if (this.#exchanges.size === 0) this.#channel.destroy();
    });
  }

  #onClosed(): void {
    for (const exchange of this.#exchanges.values()) {
      this.#end(exchange);
      exchange.handler.onBroken();
    }
  }

  /** @throws {RangeError} if a body exceeds its window. @throws {SyntaxError} if the head of a response is not JSON. */
  #onFrame({ kind, isLast, exchange: number, payload }: Frame): void {
    const exchange = this.#exchanges.get(number);
    // A pong, or a frame of an exchange that was reset.
    if (exchange === undefined) return;
    const { handler, received } = exchange;
    switch (kind) {
      case FRAME.response: {
        const parts = responseParts(payload);
        if (parts === undefined) throw new RangeError('a response without a head');
        received.receive(parts.body.length);
        if (isLast) this.#end(exchange);
        handler.onResponse(parts.head, parts.body, isLast);
        return;
      }
      case FRAME.data:
        received.receive(payload.length);
        if (isLast) this.#end(exchange);
        handler.onData(payload, isLast);
        return;
      case FRAME.window:
        exchange.body.grant(payload.readUInt32BE(0));
        return;
      case FRAME.refused: {
        const status = payload.readUInt32BE(0);
        // The next request connects with another key.
        if (status === UNTRUSTED) this.#isRetired = true;
        this.#end(exchange);
        handler.onRefused(status);
        return;
      }
      case FRAME.reset:
        this.#end(exchange);
        handler.onBroken();
        return;
      default:
    }
  }
}
