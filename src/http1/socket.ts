import { connect, type Socket } from 'node:net';

import type { LimitName } from '../limits.ts';
import { KEEP_ALIVE_MS, type WireController, type WireHandler, type WireRequest } from './wire.ts';
import { WireError, type WireFault } from './error.ts';
import type { ResponseHead } from './head.ts';
import { sharedLookup } from './lookup.ts';
import { requestBytes } from './request.ts';
import { ResponseReader, type ResponseSink } from './response.ts';

/** The address of a server, and the longest time for connecting. */
export interface WireAddress {
  readonly host: string;
  readonly port: number;
  readonly connectMs: number;
}

export interface SocketEvents {
  onIdle(socket: WireSocket): void;
  onClosed(socket: WireSocket): void;
  /** Called when bytes arrive that belong to no response, or that are no HTTP. */
  onStray(): void;
  onLimit(limit: LimitName): void;
}

const READ_BYTES = 65_536;
const TCP_PROBE_MS = 60_000;

/** Idle sockets are closed this long before the server would: it is unknown whether a request ran that met its close. */
const MARGIN_MS = 1_000;

/** One receive buffer for all sockets, because Node delivers reads one after the other. On Windows reads overlap. */
const SHARED_BUFFER = process.platform === 'win32' ? undefined : Buffer.allocUnsafeSlow(READ_BYTES);

/** One request on a socket. After its end, it cannot abort or pause the requests after it. */
class InFlight implements WireController {
  readonly request: WireRequest;
  readonly handler: WireHandler;
  readonly #socket: WireSocket;

  constructor(socket: WireSocket, request: WireRequest, handler: WireHandler) {
    this.#socket = socket;
    this.request = request;
    this.handler = handler;
  }

  abort(): void {
    this.#socket.abort(this);
  }

  pause(forMs: number): boolean {
    return this.#socket.pause(this, forMs);
  }

  hold(): void {
    this.#socket.hold(this);
  }

  resume(): void {
    this.#socket.resume(this);
  }
}

/** One connection, with at most one request on it. */
export class WireSocket implements ResponseSink {
  readonly #events: SocketEvents;
  readonly #socket: Socket;
  readonly #reader = new ResponseReader(this);
  #connecting: NodeJS.Timeout | undefined;
  #inFlight: InFlight | undefined;
  #head: ResponseHead | undefined;
  /** The time at which the silence of the server becomes a failure. Monotonic ms, like all times in this file. */
  #deadlineMs = Infinity;
  /** The time until which the idle socket may take another request. */
  #idleUntilMs = 0;
  /** The time of the last sweep while the response was being read, or of its request. */
  #sweptMs = 0;
  /** The time of the sweep before: bytes that are read now have arrived after it, however busy the event loop was. */
  #quietMs = 0;
  /** The timer that ends a pause of reading. */
  #resuming: NodeJS.Timeout | undefined;
  #isHeld = false;
  #isClosed = false;

  /** Connects, and then sends the request. */
  constructor(address: WireAddress, request: WireRequest, handler: WireHandler, events: SocketEvents) {
    const { host, port, connectMs } = address;
    this.#events = events;
    this.#inFlight = new InFlight(this, request, handler);
    const buffer = SHARED_BUFFER ?? Buffer.allocUnsafeSlow(READ_BYTES);
    const callback = (length: number) => {
      this.#read(buffer, length);
      return true;
    };
    const options = { noDelay: true, keepAlive: true, keepAliveInitialDelay: TCP_PROBE_MS };
    this.#socket = connect({ host, port, lookup: sharedLookup, ...options, onread: { buffer, callback } });
    this.#connecting = setTimeout(() => {
      this.destroy(new WireError('connect-timeout', `no connection within ${connectMs} ms`));
    }, connectMs);
    this.#socket.once('connect', () => this.#onConnect());
    this.#socket.once('end', () => {
      if (!this.#reader.onConnectionEnd())
        this.destroy(new WireError('closed', 'the other side closed the connection'));
    });
    this.#socket.on('error', (thrown) => this.destroy(thrown));
    this.#socket.once('close', () => {
      this.destroy(new WireError('closed', 'the connection was closed'));
      this.#events.onClosed(this);
    });
  }

  isUsable(nowMs: number): boolean {
    return !this.#isClosed && nowMs < this.#idleUntilMs;
  }

  /** Sends a request. The socket must be usable and have no other request. */
  send(request: WireRequest, handler: WireHandler, nowMs: number): void {
    this.#inFlight = new InFlight(this, request, handler);
    this.#start(this.#inFlight, nowMs);
  }

  /** Closes the socket, and fails its request with this error. */
  destroy(reason: Error): void {
    const inFlight = this.#inFlight;
    this.#close();
    inFlight?.handler.onResponseError(inFlight, reason);
  }

  abort(inFlight: InFlight): void {
    if (this.#inFlight === inFlight) this.#close();
  }

  pause(inFlight: InFlight, forMs: number): boolean {
    if (this.#inFlight !== inFlight || this.#resuming !== undefined) return false;
    this.#deadlineMs = Infinity;
    this.#socket.pause();
    this.#resuming = setTimeout(() => {
      this.#resuming = undefined;
      this.#readOn(inFlight);
    }, forMs);
    this.#resuming.unref();
    return true;
  }

  hold(inFlight: InFlight): void {
    if (this.#inFlight !== inFlight) return;
    this.#isHeld = true;
    this.#deadlineMs = Infinity;
    this.#socket.pause();
  }

  /** Ends what `hold` began. */
  resume(inFlight: InFlight): void {
    if (this.#inFlight !== inFlight || !this.#isHeld) return;
    this.#isHeld = false;
    this.#readOn(inFlight);
  }

  get #isStopped(): boolean {
    return this.#isHeld || this.#resuming !== undefined;
  }

  #readOn({ request }: InFlight): void {
    if (this.#isStopped) return;
    this.#socket.resume();
    this.#awaitBody(request.bodyMs);
  }

  /** Closes the socket if it was idle for too long. Fails its request if the server was silent for too long. */
  sweep(nowMs: number): void {
    if (this.#inFlight === undefined) {
      if (!this.isUsable(nowMs)) this.#close();
      return;
    }
    if (!this.#isStopped) {
      this.#quietMs = this.#sweptMs;
      this.#sweptMs = nowMs;
    }
    if (nowMs >= this.#deadlineMs) {
      const code: WireFault = this.#head === undefined ? 'headers-timeout' : 'body-timeout';
      this.destroy(new WireError(code, 'the server was silent for too long'));
    }
  }

  onHead(head: ResponseHead): void {
    const inFlight = this.#inFlight;
    if (inFlight === undefined) return;
    this.#head = head;
    this.#awaitBody(inFlight.request.bodyMs);
    inFlight.handler.onResponseStart(inFlight, head.status, head.headers);
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    const inFlight = this.#inFlight;
    if (inFlight === undefined) return;
    this.#awaitBody(inFlight.request.bodyMs);
    inFlight.handler.onResponseData(inFlight, bytes.subarray(from, to));
  }

  onEnd(isClean: boolean): void {
    const inFlight = this.#inFlight;
    if (inFlight === undefined) return;
    const keepMs = Math.min(KEEP_ALIVE_MS, (this.#head?.keepMs ?? 0) - MARGIN_MS);
    // A server that answers before it has read the request may never read it.
    const isReusable = isClean && keepMs > 0 && this.#socket.writableLength === 0;
    if (!isReusable) this.#close();
    if (!isClean) this.#events.onStray();
    try {
      inFlight.handler.onResponseEnd(inFlight);
    } catch (thrown) {
      this.#close();
      inFlight.handler.onResponseError(inFlight, asError(thrown));
      return;
    }
    // The handler has aborted, because the response contained no answer.
    if (this.#inFlight !== inFlight) return;
    this.#endRequest();
    // The server counts from the end of the response, which may have waited to be read.
    this.#idleUntilMs = this.#quietMs + keepMs;
    this.#events.onIdle(this);
  }

  #onConnect(): void {
    clearTimeout(this.#connecting);
    const nowMs = performance.now();
    this.#idleUntilMs = nowMs + KEEP_ALIVE_MS;
    if (this.#inFlight !== undefined) this.#start(this.#inFlight, nowMs);
  }

  #start(inFlight: InFlight, nowMs: number): void {
    const { request, handler } = inFlight;
    let bytes: string | Buffer;
    try {
      bytes = requestBytes(request.head, request.body);
      handler.onRequestStart(inFlight);
    } catch (thrown) {
      // Nothing was written, so the socket can take the next request.
      if (this.#inFlight === inFlight) {
        this.#endRequest();
        this.#events.onIdle(this);
      }
      handler.onResponseError(inFlight, asError(thrown));
      return;
    }
    if (this.#inFlight !== inFlight) return;
    this.#reader.start();
    this.#sweptMs = nowMs;
    this.#quietMs = nowMs;
    this.#deadlineMs = request.headersMs > 0 ? nowMs + request.headersMs : Infinity;
    this.#socket.write(bytes, 'latin1');
  }

  #awaitBody(limitMs: number): void {
    const isAwaited = limitMs > 0 && !this.#isStopped;
    this.#deadlineMs = isAwaited ? performance.now() + limitMs : Infinity;
  }

  #read(bytes: Buffer, length: number): void {
    if (this.#inFlight === undefined) {
      // These bytes belong to no request, so later responses could not be separated from them.
      this.#close();
      this.#events.onStray();
      return;
    }
    try {
      this.#reader.feed(bytes, length);
    } catch (thrown) {
      if (thrown instanceof WireError) {
        if (thrown.limit !== undefined) this.#events.onLimit(thrown.limit);
        else if (thrown.code === 'not-http') this.#events.onStray();
      }
      this.destroy(asError(thrown));
    }
  }

  /** Ends the request without a call of its handler. */
  #endRequest(): void {
    this.#inFlight = undefined;
    this.#head = undefined;
    this.#deadlineMs = Infinity;
    this.#reader.stop();
    if (!this.#isStopped) return;
    clearTimeout(this.#resuming);
    this.#resuming = undefined;
    this.#isHeld = false;
    this.#socket.resume();
  }

  #close(): void {
    this.#endRequest();
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#connecting);
    this.#socket.destroy();
  }
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error('thrown by the reader of a response', { cause: thrown });
}
