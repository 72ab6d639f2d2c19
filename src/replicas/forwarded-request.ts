import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import type { ClientRequest, Closing } from '../gateway/front/client-http.ts';
import { BodyReceiver } from './body-window.ts';
import type { Channel } from './channel.ts';
import type { ForwardedHead } from './forwarded-head.ts';

/** A request of a client that another replica has passed on. */
export class ForwardedRequest implements ClientRequest, Closing {
  /** The connection of the client ends for this process when the request does. */
  readonly socket: Closing = this;
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: string[];
  readonly #body: BodyReceiver;
  #headers: IncomingHttpHeaders | undefined;
  #stream: Readable | undefined;
  /** Bytes in the stream that were not read yet. */
  #unreadBytes = 0;
  #isComplete = false;
  #isDestroyed = false;

  constructor({ method, target, headers }: ForwardedHead, channel: Channel, exchange: number) {
    this.method = method;
    this.url = target;
    this.rawHeaders = [...headers];
    this.#body = new BodyReceiver(channel, exchange);
  }

  /** The headers by name, in lower case. Repeated ones are joined. */
  get headers(): IncomingHttpHeaders {
    return (this.#headers ??= merged(this.rawHeaders));
  }

  get complete(): boolean {
    return this.#isComplete;
  }

  get destroyed(): boolean {
    return this.#isDestroyed;
  }

  /** Adds a piece of the body. @throws {RangeError} if the other replica was not allowed to send it. */
  push(piece: Buffer, isLast: boolean): void {
    if (this.#isDestroyed || this.#isComplete) return;
    this.#body.receive(piece.length);
    const stream = this.#open();
    if (piece.length > 0) {
      this.#unreadBytes += piece.length;
      if (stream.push(piece)) this.#onRead();
    }
    if (!isLast) return;
    this.#isComplete = true;
    stream.push(null);
  }

  /** Ends the body: the client has gone, or its request is answered. */
  destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#stream?.destroy();
  }

  pause(): void {
    this.#stream?.pause();
  }

  resume(): void {
    this.#open().resume();
  }

  on(event: 'data', listener: (chunk: Buffer) => void): void;
  on(event: 'end' | 'close' | 'error', listener: () => void): void;
  on(event: string, listener: (chunk: Buffer) => void): void {
    this.#open().on(event, listener);
  }

  once(event: 'close', listener: () => void): void {
    this.#open().once(event, listener);
  }

  #open(): Readable {
    if (this.#stream === undefined) {
      this.#stream = new Readable({ autoDestroy: false, read: () => this.#onRead() });
      // Nobody waits for the body of a request that is refused by its headers.
      this.#stream.on('error', () => undefined);
      if (this.#isDestroyed) this.#stream.destroy();
    }
    return this.#stream;
  }

  #onRead(): void {
    this.#body.consume(this.#unreadBytes);
    this.#unreadBytes = 0;
  }
}

function merged(raw: readonly string[]): IncomingHttpHeaders {
  const headers: IncomingHttpHeaders = Object.create(null);
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]?.toLowerCase() ?? '';
    const value = raw[i + 1] ?? '';
    const before = headers[name];
    headers[name] = before === undefined ? value : `${String(before)}, ${value}`;
  }
  return headers;
}
