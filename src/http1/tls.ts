import { Pool } from 'undici';

import { KEEP_ALIVE_MS, type Wire, type WireHandler, type WireRequest } from './wire.ts';

/** HTTP/1.1 over TLS, by undici. */
export class TlsWire implements Wire {
  readonly #pool: Pool;

  /** @param url with `https:`; only its origin counts. */
  constructor(url: URL, connectMs: number) {
    this.#pool = new Pool(url.origin, {
      // A second request behind an unanswered one could be written twice.
      pipelining: 1,
      allowH2: false,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      connect: { timeout: connectMs },
    });
  }

  dispatch({ head, body, headersMs, bodyMs }: WireRequest, handler: WireHandler): void {
    const { method, path, headers } = head;
    this.#pool.dispatch(
      { method, path, headers: [...headers], body: body ?? null, headersTimeout: headersMs, bodyTimeout: bodyMs },
      handler,
    );
  }

  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }
}
