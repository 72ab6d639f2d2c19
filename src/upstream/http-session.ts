import type { Dispatcher } from 'undici';

import type { HttpTarget } from '../config/config.ts';
import type { StreamPosition } from '../protocol/event-stream.ts';
import { configuredHeaders, type HeaderList, lastEventIdHeader } from './http-headers.ts';

/** From this revision on, every message after `initialize` names the revision. */
const VERSION_HEADER_SINCE = '2025-06-18';

/** What every request to one endpoint says of the conversation it belongs to. */
export class HttpSession {
  readonly #origin: string;
  readonly #path: string;
  readonly #configured: HeaderList;
  #id: string | undefined;
  #revision: string | undefined;
  #postHeaders: HeaderList = [];
  #getHeaders: HeaderList = [];

  constructor(target: HttpTarget, userAgent: string) {
    const { origin, pathname, search } = new URL(target.url);
    this.#origin = origin;
    this.#path = pathname + search;
    this.#configured = configuredHeaders(target, userAgent);
    this.#build();
  }

  /** What the upstream named the session in its answer to `initialize`, if it did. */
  get id(): string | undefined {
    return this.#id;
  }

  named(id: string): void {
    this.#id = id;
    this.#build();
  }

  settled(revision: string): void {
    this.#revision = revision;
    this.#build();
  }

  /**
   * @param headersMs until the response headers.
   * @param bodyMs between two pieces of the body; 0 for any time.
   */
  post(body: string, headersMs: number, bodyMs: number): Dispatcher.DispatchOptions {
    return {
      origin: this.#origin,
      path: this.#path,
      method: 'POST',
      headers: this.#postHeaders,
      body,
      headersTimeout: headersMs,
      bodyTimeout: bodyMs,
    };
  }

  get(position: StreamPosition): Dispatcher.DispatchOptions {
    const lastEventId = lastEventIdHeader(position.lastEventId);
    const headers = lastEventId === undefined ? this.#getHeaders : [...this.#getHeaders, 'last-event-id', lastEventId];
    return { origin: this.#origin, path: this.#path, method: 'GET', headers };
  }

  delete(): Dispatcher.DispatchOptions {
    return { origin: this.#origin, path: this.#path, method: 'DELETE', headers: this.#getHeaders };
  }

  /** Once per change instead of once per message. */
  #build(): void {
    const common = [...this.#configured];
    if (this.#id !== undefined) common.push('mcp-session-id', this.#id);
    if (this.#revision !== undefined && this.#revision >= VERSION_HEADER_SINCE) {
      common.push('mcp-protocol-version', this.#revision);
    }
    this.#getHeaders = ['accept', 'text/event-stream', ...common];
    this.#postHeaders = [
      'content-type',
      'application/json',
      'accept',
      'application/json, text/event-stream',
      ...common,
    ];
  }
}
