import { EventEmitter } from 'node:events';
import type { OutgoingHttpHeaders } from 'node:http';
import type { ClientRequest, ClientResponse } from '../gateway/front/client-http.ts';
import { BodySender } from './body-window.ts';
import type { Channel } from './channel.ts';
import { bareFrame, FRAME, type ForwardedResponseHead, responseFrame } from './frames.ts';

type Event = 'drain' | 'finish' | 'close' | 'error';

/** The response to a request that another replica has passed on. It is sent to that replica, which sends it to the client. */
export class ForwardedResponse implements ClientResponse {
  readonly req: ClientRequest;
  readonly #channel: Channel;
  readonly #exchange: number;
  readonly #onEnd: () => void;
  readonly #body: BodySender;
  #events: EventEmitter | undefined;
  /** Undefined before `writeHead`. */
  #head: ForwardedResponseHead | undefined;
  #headersSent = false;
  #isEnded = false;
  #isDestroyed = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param onEnd called once, when nothing more of the response will be sent. */
  constructor(req: ClientRequest, channel: Channel, exchange: number, onEnd: () => void) {
    this.req = req;
    this.#channel = channel;
    this.#exchange = exchange;
    this.#onEnd = onEnd;
    this.#body = new BodySender(
      channel,
      exchange,
      () => this.#events?.emit('drain'),
      () => this.#finish(),
    );
  }

  get destroyed(): boolean {
    return this.#isDestroyed;
  }

  get writableEnded(): boolean {
    return this.#isEnded;
  }

  get headersSent(): boolean {
    return this.#headersSent;
  }

  get writableLength(): number {
    return this.#body.queuedBytes;
  }

  writeHead(status: number, headers: OutgoingHttpHeaders | string[] = []): void {
    this.#head = { status, headers: Array.isArray(headers) ? headers : flat(headers) };
  }

  flushHeaders(): void {
    if (this.#headersSent || this.#isDestroyed) return;
    this.#headersSent = true;
    this.#channel.write(responseFrame(this.#exchange, false, this.#head ?? OK));
  }

  write(chunk: string | Buffer): boolean {
    if (this.#isDestroyed || this.#isEnded) return true;
    this.flushHeaders();
    return this.#body.write(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  }

  end(chunk: string | Buffer = ''): void {
    if (this.#isDestroyed || this.#isEnded) return;
    this.#isEnded = true;
    const bytes = Buffer.byteLength(chunk);
    if (!this.#headersSent && this.#body.reserve(bytes)) {
      this.#headersSent = true;
      this.#channel.write(responseFrame(this.#exchange, true, this.#head ?? OK, chunk, bytes));
      this.#finish();
      return;
    }
    this.flushHeaders();
    this.#body.end(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  }

  /** Ends the response before its end. */
  destroy(): void {
    if (this.#isDestroyed) return;
    this.#channel.write(bareFrame(FRAME.reset, this.#exchange));
    this.abandon();
  }

  /** Ends the response because its client has gone. */
  abandon(): void {
    if (this.#isDestroyed) return;
    this.#body.close();
    this.#close();
  }

  /** Allows further bytes of the body. */
  grant(bytes: number): void {
    this.#timer?.refresh();
    this.#body.grant(bytes);
  }

  setTimeout(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = ms === 0 || this.#isDestroyed ? undefined : setTimeout(() => this.destroy(), ms).unref();
  }

  on(event: Event, listener: () => void): void {
    this.#emitter().on(event, listener);
  }

  once(event: 'close', listener: () => void): void {
    this.#emitter().once(event, listener);
  }

  removeListener(event: 'close', listener: () => void): void {
    this.#events?.removeListener(event, listener);
  }

  #emitter(): EventEmitter {
    return (this.#events ??= new EventEmitter());
  }

  /** Ends the response. As with Node's responses, the events follow later. */
  #finish(): void {
    if (this.#events === undefined) {
      this.#close();
      return;
    }
    process.nextTick(() => {
      if (this.#isDestroyed) return;
      this.#events?.emit('finish');
      this.#close();
    });
  }

  #close(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    clearTimeout(this.#timer);
    this.#onEnd();
    this.#events?.emit('close');
  }
}

const OK: ForwardedResponseHead = { status: 200, headers: [] };

function flat(headers: OutgoingHttpHeaders): string[] {
  return Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [name, String(value)]));
}
