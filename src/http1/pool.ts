import type { Wire, WireHandler, WireRequest } from './wire.ts';
import { WireError } from './error.ts';
import { type SocketOwner, type WireAddress, WireSocket } from './socket.ts';

/** How exact deadlines are. */
const SWEEP_MS = 250;

const NOTHING_IN_FLIGHT = { abort: (): void => undefined, pause: (): boolean => false };

/** A request that is written as soon as its socket is known to be silent. */
interface Reservation {
  readonly socket: WireSocket;
  readonly request: WireRequest;
  readonly handler: WireHandler;
}

/**
 * HTTP/1.1 over plain sockets, as many as it takes. The socket used last is used next.
 *
 * A request on a used socket is written only after a poll phase of the event loop that began after `dispatch`. Bytes that lie
 * unread on the socket, such as a response sent twice, are read in that phase and close the socket; the request, of which
 * nothing was written, gets a new one. Without that, a busy event loop would read them as the response to the request.
 */
export class WirePool implements Wire, SocketOwner {
  readonly #address: WireAddress;
  readonly #sockets = new Set<WireSocket>();
  /** The one used last at the end; until the next sweep also closed ones. */
  #idle: WireSocket[] = [];
  /** Made since the last check phase. */
  #reserved: Reservation[] = [];
  /** Made before the poll phase that is running now, or runs next. */
  #polled: Reservation[] = [];
  #sweeping: NodeJS.Timeout | undefined;
  #destroyed: PromiseWithResolvers<void> | undefined;

  /** @param url with `http:`; only host and port count. */
  constructor(url: URL, connectMs: number) {
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    this.#address = { host, port: url.port === '' ? 80 : Number(url.port), connectMs };
  }

  dispatch(request: WireRequest, handler: WireHandler): void {
    if (this.#destroyed !== undefined) {
      handler.onResponseError(NOTHING_IN_FLIGHT, destroyed());
      return;
    }
    const socket = request.head.method === 'GET' ? undefined : this.#takeIdle();
    if (socket === undefined) {
      this.#connect(request, handler);
      return;
    }
    if (this.#reserved.push({ socket, request, handler }) === 1 && this.#polled.length === 0) this.#awaitCheckPhase();
  }

  async destroy(): Promise<void> {
    if (this.#destroyed === undefined) {
      this.#destroyed = Promise.withResolvers<void>();
      for (const socket of this.#sockets) socket.destroy(destroyed());
      for (const { handler } of [...this.#polled, ...this.#reserved]) {
        handler.onResponseError(NOTHING_IN_FLIGHT, destroyed());
      }
      this.#polled = [];
      this.#reserved = [];
      this.#settle();
    }
    await this.#destroyed.promise;
  }

  released(socket: WireSocket): void {
    this.#idle.push(socket);
  }

  closed(socket: WireSocket): void {
    this.#sockets.delete(socket);
    this.#settle();
  }

  #takeIdle(): WireSocket | undefined {
    const nowMs = performance.now();
    let socket = this.#idle.pop();
    // The sweep closes those that are too old.
    while (socket !== undefined && !socket.isUsable(nowMs)) socket = this.#idle.pop();
    return socket;
  }

  #awaitCheckPhase(): void {
    setImmediate(() => this.#poll());
  }

  /** Runs at the end of a poll phase. */
  #poll(): void {
    const ready = this.#polled;
    this.#polled = this.#reserved;
    this.#reserved = [];
    if (this.#polled.length > 0) this.#awaitCheckPhase();
    const nowMs = performance.now();
    for (const { socket, request, handler } of ready) {
      if (socket.isUsable(nowMs)) socket.send(request, handler, nowMs);
      else this.#connect(request, handler);
    }
  }

  #connect(request: WireRequest, handler: WireHandler): void {
    this.#sockets.add(new WireSocket(this.#address, request, handler, this));
    if (this.#sweeping !== undefined) return;
    this.#sweeping = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeping.unref();
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const socket of this.#sockets) socket.sweep(nowMs);
    this.#idle = this.#idle.filter((socket) => socket.isUsable(nowMs));
  }

  #settle(): void {
    if (this.#sockets.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
    this.#idle = [];
    this.#destroyed?.resolve();
  }
}

function destroyed(): WireError {
  return new WireError('destroyed', 'the connections to the server were closed');
}
