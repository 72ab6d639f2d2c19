import type { HttpTarget } from '../../config/config.ts';
import type { StreamPosition } from '../../protocol/event-stream.ts';
import { configuredHeaders, lastEventIdHeader } from './http-headers.ts';
import type { WireRequest } from '../../http1/wire.ts';
import { type HeaderList, RequestHead } from '../../http1/request.ts';

/** From this revision on, every message after `initialize` names the revision. */
const VERSION_HEADER_SINCE = '2025-06-18';

/** What every request to one endpoint says of the conversation it belongs to. */
export class HttpSession {
  readonly #authority: string;
  readonly #path: string;
  readonly #configured: HeaderList;
  #id: string | undefined;
  #revision: string | undefined;
  #postHead: RequestHead;
  #getHeaders: HeaderList;

  constructor(target: HttpTarget, userAgent: string) {
    const { host, pathname, search } = new URL(target.url);
    this.#authority = host;
    this.#path = pathname + search;
    this.#configured = configuredHeaders(target, userAgent);
    this.#getHeaders = this.#buildGet();
    this.#postHead = this.#buildPost();
  }

  /** What the upstream named the session in its answer to `initialize`, if it did. */
  get id(): string | undefined {
    return this.#id;
  }

  setId(id: string): void {
    this.#id = id;
    this.#build();
  }

  setRevision(revision: string): void {
    this.#revision = revision;
    this.#build();
  }

  /**
   * @param headersMs until the response headers.
   * @param bodyMs between two pieces of the body; 0 for any time.
   */
  post(body: string, headersMs: number, bodyMs: number): WireRequest {
    return { head: this.#postHead, body, headersMs, bodyMs };
  }

  get(position: StreamPosition): WireRequest {
    const lastEventId = lastEventIdHeader(position.lastEventId);
    const headers = lastEventId === undefined ? this.#getHeaders : [...this.#getHeaders, 'last-event-id', lastEventId];
    return { head: this.#head('GET', headers), body: undefined, headersMs: 0, bodyMs: 0 };
  }

  delete(): WireRequest {
    return { head: this.#head('DELETE', this.#getHeaders), body: undefined, headersMs: 0, bodyMs: 0 };
  }

  /** Once per change instead of once per message. */
  #build(): void {
    this.#getHeaders = this.#buildGet();
    this.#postHead = this.#buildPost();
  }

  #buildGet(): HeaderList {
    return ['accept', 'text/event-stream', ...this.#common()];
  }

  #buildPost(): RequestHead {
    const accept = 'application/json, text/event-stream';
    return this.#head('POST', ['content-type', 'application/json', 'accept', accept, ...this.#common()]);
  }

  #head(method: RequestHead['method'], headers: HeaderList): RequestHead {
    return new RequestHead(method, this.#authority, this.#path, headers);
  }

  #common(): string[] {
    const common = [...this.#configured];
    if (this.#id !== undefined) common.push('mcp-session-id', this.#id);
    if (this.#revision !== undefined && this.#revision >= VERSION_HEADER_SINCE) {
      common.push('mcp-protocol-version', this.#revision);
    }
    return common;
  }
}
