import type { SecureContextOptions } from 'node:tls';
import { buildConnector, type Dispatcher, errors, Pool } from 'undici';
import { type LimitName, LIMITS } from '../limits.ts';
import { Distrust } from './distrust.ts';
import { WireError } from './error.ts';
import { sharedLookup } from './lookup.ts';
import { tooManyInterim } from './response.ts';
import { tunnelConnector } from './tunnel.ts';
import {
  KEEP_ALIVE_MS,
  type ResponseHeaders,
  type Wire,
  type WireController,
  type WireHandler,
  type WireRequest,
} from './wire.ts';

/** The way to a server. */
interface TlsOptions {
  /** Texts in PEM: the certificates that sign that of the server, and the certificate of the client with its key. */
  readonly tls?: Pick<SecureContextOptions, 'ca' | 'cert' | 'key'> | undefined;
  /** URL of the HTTP proxy; undefined for direct connections. */
  readonly proxy?: string | undefined;
  readonly onLimit?: (limit: LimitName) => void;
}

/**
 * HTTP/1.1 over TLS, with undici.
 *
 * undici reuses a socket before the handler has checked the response, and cannot close that one socket afterwards. So if the handler aborts
 * or throws in `onResponseEnd`, the pool is replaced. Later requests get new sockets, and each old socket is closed when its request has
 * ended. It is replaced after bytes that belong to no response too, and then no socket is used for a second request: see {@link Distrust}.
 */
export class TlsWire implements Wire {
  readonly #origin: string;
  readonly #connectMs: number;
  readonly #tls: TlsOptions['tls'];
  readonly #proxy: string | undefined;
  readonly #onLimit: (limit: LimitName) => void;
  #posts: Pool;
  /** The pool for GET requests, whose responses may be event streams that name no request. */
  #gets: Pool;
  readonly #retired = new Set<Pool>();
  readonly #distrust = new Distrust();
  #isDestroyed = false;

  /**
   * @param url an `https:` URL, of which only the origin is used.
   * @throws {Error} if a certificate or key cannot be used.
   */
  constructor(url: URL, connectMs: number, { tls, proxy, onLimit = () => undefined }: TlsOptions = {}) {
    this.#tls = tls;
    this.#proxy = proxy;
    this.#onLimit = onLimit;
    this.#origin = url.origin;
    this.#connectMs = connectMs;
    this.#posts = this.#connect();
    this.#gets = this.#connect();
  }

  dispatch({ head, body, headersMs, bodyMs }: WireRequest, handler: WireHandler): void {
    const { method, path, headers } = head;
    const pool = method === 'GET' ? this.#gets : this.#posts;
    pool.dispatch(
      {
        method,
        path,
        headers: [...headers],
        body: body ?? null,
        headersTimeout: headersMs,
        bodyTimeout: bodyMs,
        reset: this.#distrust.isOn,
      },
      new CheckedRequest(handler, () => this.#retire(pool), this.#onLimit),
    );
  }

  async destroy(): Promise<void> {
    this.#isDestroyed = true;
    await Promise.all([this.#posts, this.#gets, ...this.#retired].map((pool) => pool.destroy()));
  }

  /** Replaces a pool by a new one. The old one closes each socket when its request has ended. */
  #retire(pool: Pool): void {
    if (this.#isDestroyed) return;
    if (pool === this.#posts) this.#posts = this.#connect();
    else if (pool === this.#gets) this.#gets = this.#connect();
    else return;
    this.#retired.add(pool);
    const forget = (): boolean => this.#retired.delete(pool);
    pool.close().then(forget, forget);
  }

  #connect(): Pool {
    const pool = new Pool(this.#origin, {
      // With more, undici could write a request twice that was queued behind an unanswered one.
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: LIMITS.responseHeadBytes,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      connect: this.#connector(),
    });
    pool.on('disconnect', (_origin, _targets, error) => {
      if (!isStray(error)) return;
      this.#distrust.begin();
      this.#retire(pool);
    });
    return pool;
  }

  #connector(): buildConnector.connector | buildConnector.BuildOptions {
    const connectMs = this.#connectMs;
    const options = { timeout: connectMs, allowH2: false, lookup: sharedLookup, ...this.#tls };
    if (this.#proxy === undefined) return options;
    return tunnelConnector({ url: this.#proxy, connectMs }, buildConnector(options));
  }
}

/** Passes the events of one request to its handler, and reports a response that the handler rejects at its end. */
class CheckedRequest implements Dispatcher.DispatchHandler, WireController {
  readonly #handler: WireHandler;
  readonly #onRejected: () => void;
  readonly #onLimit: (limit: LimitName) => void;
  #controller: Dispatcher.DispatchController | undefined;
  /** Interim heads (1xx) before the head of the response. */
  #interim = 0;
  /** The timer that ends a pause of reading. */
  #resuming: NodeJS.Timeout | undefined;
  #isHeld = false;

  constructor(handler: WireHandler, onRejected: () => void, onLimit: (limit: LimitName) => void) {
    this.#handler = handler;
    this.#onRejected = onRejected;
    this.#onLimit = onLimit;
  }

  /** Aborts the request. During `onResponseEnd` undici cannot close the socket any more, so the pool is replaced. */
  abort(reason: Error): void {
    if (this.#controller === undefined) this.#onRejected();
    else this.#controller.abort(reason);
  }

  pause(forMs: number): boolean {
    const controller = this.#controller;
    if (controller === undefined || this.#resuming !== undefined) return false;
    // undici does not count a pause as silence.
    controller.pause();
    this.#resuming = setTimeout(() => {
      this.#resuming = undefined;
      if (!this.#isHeld) controller.resume();
    }, forMs);
    this.#resuming.unref();
    return true;
  }

  hold(): void {
    if (this.#controller === undefined) return;
    this.#isHeld = true;
    this.#controller.pause();
  }

  resume(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    if (this.#resuming === undefined) this.#controller?.resume();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#handler.onRequestStart(this);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    if (status < 200) {
      if (++this.#interim > LIMITS.interimResponses) controller.abort(tooManyInterim());
      return;
    }
    this.#handler.onResponseStart(this, status, trimmed(headers));
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#handler.onResponseData(this, chunk);
  }

  onResponseEnd(): void {
    clearTimeout(this.#resuming);
    const controller = this.#controller;
    this.#controller = undefined;
    try {
      this.#handler.onResponseEnd(this);
    } catch (thrown) {
      this.#onRejected();
      throw thrown;
    } finally {
      this.#controller = controller;
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController, thrown: Error): void {
    clearTimeout(this.#resuming);
    const limit = limitOf(thrown);
    if (limit !== undefined) this.#onLimit(limit);
    this.#handler.onResponseError(this, thrown);
  }
}

/** Returns the headers without the white space behind their values, which undici keeps. */
function trimmed(headers: ResponseHeaders): ResponseHeaders {
  const entries = Object.entries(headers).map(([name, value]) => {
    return [name, Array.isArray(value) ? value.map((one) => one.trimEnd()) : value?.trimEnd()];
  });
  return Object.fromEntries(entries);
}

/** Returns whether undici closed a socket because of bytes that belong to no response, or that are no HTTP. */
function isStray(thrown: Error): boolean {
  return (
    thrown.name === 'HTTPParserError' || (thrown instanceof errors.SocketError && thrown.message === 'bad response')
  );
}

/** Returns the bound that a response exceeds; undefined for other failures. */
function limitOf(thrown: Error): LimitName | undefined {
  if (thrown instanceof errors.HeadersOverflowError) return 'responseHeadBytes';
  return thrown instanceof WireError ? thrown.limit : undefined;
}
