import type { Wire, WireHandler, WireRequest } from './wire.ts';
import { WireError } from './error.ts';
import { type SocketOwner, type WireAddress, WireSocket } from './socket.ts';

/** How exact deadlines are. */
const SWEEP_MS = 250;

const NOTHING_UNDER_WAY = { abort: (): void => undefined };

/** HTTP/1.1 over plain sockets, as many as it takes. The one used last is used next. */
export class WirePool implements Wire, SocketOwner {
  readonly #address: WireAddress;
  readonly #sockets = new Set<WireSocket>();
  /** The one used last at the end; until the next sweep also closed ones. */
  #idle: WireSocket[] = [];
  #sweeping: NodeJS.Timeout | undefined;
  #destroyed: PromiseWithResolvers<void> | undefined;

  /** @param url with `http:`; only host and port count. */
  constructor(url: URL, connectMs: number) {
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    this.#address = { host, port: url.port === '' ? 80 : Number(url.port), connectMs };
  }

  dispatch(request: WireRequest, handler: WireHandler): void {
    if (this.#destroyed !== undefined) {
      handler.onResponseError(NOTHING_UNDER_WAY, ended());
      return;
    }
    const nowMs = performance.now();
    const socket = this.#take(nowMs);
    if (socket === undefined) this.#connect(request, handler);
    else socket.send(request, handler, nowMs);
  }

  async destroy(): Promise<void> {
    if (this.#destroyed === undefined) {
      this.#destroyed = Promise.withResolvers<void>();
      for (const socket of this.#sockets) socket.destroy(ended());
      this.#settle();
    }
    await this.#destroyed.promise;
  }

  free(socket: WireSocket): void {
    this.#idle.push(socket);
  }

  gone(socket: WireSocket): void {
    this.#sockets.delete(socket);
    this.#settle();
  }

  #take(nowMs: number): WireSocket | undefined {
    let socket = this.#idle.pop();
    // What is too old is closed by the sweep.
    while (socket !== undefined && !socket.isUsable(nowMs)) socket = this.#idle.pop();
    return socket;
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

function ended(): WireError {
  return new WireError('destroyed', 'the connections to the server were closed');
}
