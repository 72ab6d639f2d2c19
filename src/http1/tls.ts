import { type Dispatcher, Pool } from 'undici';

import {
  KEEP_ALIVE_MS,
  type ResponseHeaders,
  type Wire,
  type WireController,
  type WireHandler,
  type WireRequest,
} from './wire.ts';

/**
 * HTTP/1.1 over TLS, by undici.
 *
 * undici releases a socket before the handler has judged the response, and cannot close that one socket later. So a handler
 * that aborts or throws in `onResponseEnd` replaces the pool: later requests get new sockets, and the old ones are closed as
 * soon as the requests on them have ended.
 */
export class TlsWire implements Wire {
  readonly #origin: string;
  readonly #connectMs: number;
  #posts: Pool;
  /** Of GETs, whose responses may be event streams that name no request. */
  #gets: Pool;
  readonly #retired = new Set<Pool>();
  #isDestroyed = false;

  /** @param url with `https:`; only its origin counts. */
  constructor(url: URL, connectMs: number) {
    this.#origin = url.origin;
    this.#connectMs = connectMs;
    this.#posts = this.#connect();
    this.#gets = this.#connect();
  }

  dispatch({ head, body, headersMs, bodyMs }: WireRequest, handler: WireHandler): void {
    const { method, path, headers } = head;
    const pool = method === 'GET' ? this.#gets : this.#posts;
    pool.dispatch(
      { method, path, headers: [...headers], body: body ?? null, headersTimeout: headersMs, bodyTimeout: bodyMs },
      new JudgedRequest(handler, () => this.#retire(pool)),
    );
  }

  async destroy(): Promise<void> {
    this.#isDestroyed = true;
    await Promise.all([this.#posts, this.#gets, ...this.#retired].map((pool) => pool.destroy()));
  }

  /** Puts a new pool in the place of this one, which closes its sockets as its requests end. */
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
    return new Pool(this.#origin, {
      // A second request behind an unanswered one could be written twice.
      pipelining: 1,
      allowH2: false,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      connect: { timeout: this.#connectMs },
    });
  }
}

/** Hands the events of one request on, and reports when its response is rejected at the end. */
class JudgedRequest implements Dispatcher.DispatchHandler, WireController {
  readonly #handler: WireHandler;
  readonly #onRejected: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  /** While reading is paused. */
  #resuming: NodeJS.Timeout | undefined;

  constructor(handler: WireHandler, onRejected: () => void) {
    this.#handler = handler;
    this.#onRejected = onRejected;
  }

  /** While the end of the response is judged, there is no controller that could do anything. */
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
      controller.resume();
    }, forMs);
    this.#resuming.unref();
    return true;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#handler.onRequestStart(this);
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    this.#handler.onResponseStart(this, status, headers);
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
    this.#handler.onResponseError(this, thrown);
  }
}
