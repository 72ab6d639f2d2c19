import type { LimitName } from '../limits.ts';
import { NO_CONTROL, type Wire, type WireHandler, type WireRequest } from './wire.ts';
import { Distrust } from './distrust.ts';
import { WireError } from './error.ts';
import { addressOf } from './tunnel.ts';
import { type SocketEvents, type WireAddress, WireSocket } from './socket.ts';

/** The accuracy of deadlines: they are checked this often. */
const SWEEP_MS = 250;

/** A request that waits until its reused socket is known to hold no unread bytes. */
interface Reservation {
  readonly socket: WireSocket;
  readonly request: WireRequest;
  readonly handler: WireHandler;
}

/**
 * The plain sockets to one origin, without an upper bound. The most recently used socket is used next.
 *
 * A request on a reused socket is written only after a poll phase of the event loop that began after `dispatch`. Unread
 * bytes on the socket, such as a response sent twice, are read in that phase and close the socket. The request, of which
 * nothing was written, then gets a new socket. Otherwise a busy event loop would read those bytes as its response.
 *
 * After bytes that belong to no response, no socket is used for a second request: see {@link Distrust}.
 */
export class WirePool implements Wire, SocketEvents {
  readonly #address: WireAddress;
  readonly #sockets = new Set<WireSocket>();
  /** Idle sockets, the most recently used last. Closed ones stay here until the next sweep. */
  #idle: WireSocket[] = [];
  /** Reservations since the last check phase of the event loop. */
  #reserved: Reservation[] = [];
  /** Reservations from before the current or next poll phase. */
  #polled: Reservation[] = [];
  readonly #distrust = new Distrust();
  #sweeping: NodeJS.Timeout | undefined;
  #destroyed: PromiseWithResolvers<void> | undefined;

  readonly onLimit: (limit: LimitName) => void;

  /** @param url an `http:` URL, of which only host and port are used. */
  constructor(url: URL, connectMs: number, onLimit: (limit: LimitName) => void = () => undefined) {
    this.onLimit = onLimit;
    this.#address = { ...addressOf(url), connectMs };
  }

  dispatch(request: WireRequest, handler: WireHandler): void {
    if (this.#destroyed !== undefined) {
      handler.onResponseError(NO_CONTROL, destroyedError());
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
      for (const socket of this.#sockets) socket.destroy(destroyedError());
      for (const { handler } of [...this.#polled, ...this.#reserved]) {
        handler.onResponseError(NO_CONTROL, destroyedError());
      }
      this.#polled = [];
      this.#reserved = [];
      this.#settle();
    }
    await this.#destroyed.promise;
  }

  onIdle(socket: WireSocket): void {
    if (this.#distrust.isOn) socket.destroy(strayError());
    else this.#idle.push(socket);
  }

  onStray(): void {
    this.#distrust.begin();
    const idle = this.#idle;
    this.#idle = [];
    for (const socket of idle) socket.destroy(strayError());
  }

  onClosed(socket: WireSocket): void {
    this.#sockets.delete(socket);
    this.#settle();
  }

  #takeIdle(): WireSocket | undefined {
    const nowMs = performance.now();
    let socket = this.#idle.pop();
    // The sweep closes the expired ones.
    while (socket !== undefined && !socket.isUsable(nowMs)) socket = this.#idle.pop();
    return socket;
  }

  #awaitCheckPhase(): void {
    setImmediate(() => this.#poll());
  }

  /** Sends the requests whose poll phase has ended. Runs in each check phase while there are reservations. */
  #poll(): void {
    const ready = this.#polled;
    this.#polled = this.#reserved;
    this.#reserved = [];
    if (this.#polled.length > 0) this.#awaitCheckPhase();
    const nowMs = performance.now();
    for (const { socket, request, handler } of ready) {
      if (socket.isUsable(nowMs) && !this.#distrust.isOn) {
        socket.send(request, handler, nowMs);
        continue;
      }
      socket.destroy(strayError());
      this.#connect(request, handler);
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

/** Returns the reason for closing idle sockets. No request gets it. */
function strayError(): WireError {
  return new WireError('closed', 'the server has sent bytes that belong to no response');
}

function destroyedError(): WireError {
  return new WireError('destroyed', 'the connections to the server were closed');
}
