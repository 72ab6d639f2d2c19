import type { HttpTarget } from '../../config/values/upstream-config.ts';
import type { StreamPosition } from '../../protocol/framing/event-stream.ts';
import { featuresOf, type Revision } from '../../protocol/revisions.ts';
import type { TraceContext } from '../../protocol/trace-context.ts';
import type { Cookies } from './cookies.ts';
import { configuredHeaders, lastEventIdHeader, tracedHead } from './http-headers.ts';
import type { ResponseHeaders, WireRequest } from '../../http1/wire.ts';
import { type HeaderList, RequestHead } from '../../http1/request.ts';

/** Builds the requests to one endpoint, with the headers of its session. */
export class HttpSession {
  readonly #authority: string;
  readonly #path: string;
  readonly #pathname: string;
  readonly #cookies: Cookies;
  readonly #target: HttpTarget;
  readonly #userAgent: string;
  #id: string | undefined;
  #revision: Revision | undefined;
  /** The same for all messages between two changes of the session or of the configured headers; made at the first. */
  #postHead: RequestHead | undefined;
  /** The headers of the target that `#postHead` was made of. */
  #postHeadFrom: HttpTarget['headers'] | undefined;

  /**
   * @param target its headers may be replaced; later requests then have the new ones.
   * @param cookies of the connection, from its earlier responses.
   * @param url of the endpoint, if it is not that of the target.
   */
  constructor(target: HttpTarget, userAgent: string, cookies: Cookies, url: string = target.url) {
    const { host, pathname, search } = new URL(url);
    this.#authority = host;
    this.#path = pathname + search;
    this.#pathname = pathname;
    this.#cookies = cookies;
    this.#target = target;
    this.#userAgent = userAgent;
  }

  /** The session id from the answer to `initialize`; undefined without one. */
  get id(): string | undefined {
    return this.#id;
  }

  /** The cookies, as the upstream has sent them. */
  get cookies(): readonly string[] {
    return this.#cookies.lines;
  }

  setId(id: string): void {
    this.#id = id;
    this.#postHead = undefined;
  }

  /** Adds the revision to later requests, if it is one that has the header. */
  setRevision(revision: Revision): void {
    this.#revision = revision;
    this.#postHead = undefined;
  }

  /** Keeps the cookies of a response for later requests. */
  keepCookies({ 'set-cookie': lines }: ResponseHeaders): void {
    if (lines === undefined) return;
    if (this.#cookies.update([lines].flat(), this.#pathname, Date.now())) this.#postHead = undefined;
  }

  /**
   * Returns a POST request.
   *
   * @param silentMs longest wait for the response headers and for each piece of the body, in milliseconds; 0 for no deadline.
   * @param trace the trace and span that the message belongs to.
   */
  post(body: string, silentMs: number, trace?: TraceContext): WireRequest {
    if (this.#target.headers !== this.#postHeadFrom) this.#postHead = undefined;
    this.#postHead ??= this.#buildPostHead();
    const head = trace === undefined ? this.#postHead : tracedHead(this.#postHead, trace);
    return { head, body, headersMs: silentMs, bodyMs: silentMs };
  }

  get(position: StreamPosition): WireRequest {
    const lastEventId = lastEventIdHeader(position.lastEventId);
    const resumed = lastEventId === undefined ? [] : ['last-event-id', lastEventId];
    return {
      head: this.#head('GET', [...this.#streamHeaders(), ...resumed]),
      body: undefined,
      headersMs: 0,
      bodyMs: 0,
    };
  }

  delete(): WireRequest {
    return { head: this.#head('DELETE', this.#streamHeaders()), body: undefined, headersMs: 0, bodyMs: 0 };
  }

  #buildPostHead(): RequestHead {
    this.#postHeadFrom = this.#target.headers;
    const accept = 'application/json, text/event-stream';
    return this.#head('POST', ['content-type', 'application/json', 'accept', accept, ...this.#commonHeaders()]);
  }

  #streamHeaders(): HeaderList {
    return ['accept', 'text/event-stream', ...this.#commonHeaders()];
  }

  #head(method: RequestHead['method'], headers: HeaderList): RequestHead {
    return new RequestHead(method, this.#authority, this.#path, headers);
  }

  #commonHeaders(): string[] {
    const common = withCookies(
      configuredHeaders(this.#target, this.#userAgent),
      this.#cookies.headerFor(this.#pathname),
    );
    if (this.#id !== undefined) common.push('mcp-session-id', this.#id);
    if (this.#revision !== undefined && featuresOf(this.#revision).versionHeader) {
      common.push('mcp-protocol-version', this.#revision);
    }
    return common;
  }
}

/** Returns the headers with further cookies: a request has one header for all of them. */
function withCookies(headers: HeaderList, cookies: string): string[] {
  if (cookies === '') return [...headers];
  // A name is at an even index, and its value behind it.
  const at = headers.findIndex((text, index) => index % 2 === 0 && text === 'cookie');
  if (at < 0) return [...headers, 'cookie', cookies];
  return headers.with(at + 1, `${headers[at + 1]}; ${cookies}`);
}
