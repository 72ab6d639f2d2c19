import { malformedAnswer, wasAnswerTo } from '../rpc/malformed-answer.ts';
import { sentBackId } from '../rpc/request-ids.ts';
import { ArrayMap } from '../../small-collections.ts';
import type { HttpTarget } from '../../config/values/upstream-config.ts';
import type { GatewayError } from '../../errors.ts';
import type { Message, MessageError } from '../../protocol/jsonrpc.ts';
import { interpretErrorResponse, type ErrorResponse } from './http-failure.ts';
import { configuredHeaders, tracedHead } from './http-headers.ts';
import { readMessages } from './http-messages.ts';
import { UpstreamPost, type UpstreamPostHandler } from './http-post.ts';
import type { HttpOptions } from './http.ts';
import type { Header } from '../../protocol/framing/mcp-headers.ts';
import { type HeaderList, RequestHead } from '../../http1/request.ts';
import {
  closedError,
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
} from '../rpc/transport.ts';

/**
 * Returns the transport for Streamable HTTP of the modern era. Requests are independent, and the messages about a request arrive
 * in its response.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
 */
export function modernHttpTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return (events) => Promise.resolve(new ModernHttpTransport(target, options, events));
}

const NO_HEADERS: readonly Header[] = [];

class ModernHttpTransport implements Transport, UpstreamPostHandler {
  readonly options: HttpOptions;
  readonly mayKeepState = false;
  readonly #authority: string;
  readonly #path: string;
  readonly #target: HttpTarget;
  #revision = '';
  #headers: HeaderList = [];
  /** The headers of the target that `#headers` and the heads were made of. */
  #headersFrom: HttpTarget['headers'] | undefined;
  /** Request heads without `Mcp-Param-…`, by their array of standard headers. Most requests repeat an earlier head. */
  #headsByHeaders = new WeakMap<readonly Header[], RequestHead>();
  readonly #events: TransportEvents;
  readonly #inFlight = new ArrayMap<number, UpstreamPost>();
  #isClosed = false;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    const { host, pathname, search } = new URL(target.url);
    this.options = options;
    this.#authority = host;
    this.#path = pathname + search;
    this.#target = target;
    this.#events = events;
  }

  /** Sends requests only. Notifications are not sent: in this era, closing the response stream cancels a request. */
  send(message: Outgoing): void {
    const { id, text, standardHeaders = NO_HEADERS, paramHeaders = NO_HEADERS, trace } = message;
    if (this.#isClosed || id === undefined) return;
    const post = new UpstreamPost(this, message, true);
    this.#inFlight.set(id, post);
    const repeated = this.#head(standardHeaders, paramHeaders);
    const head = trace === undefined ? repeated : tracedHead(repeated, trace);
    // A server may send the headers with its answer. Late requests are ended with forget().
    this.options.wire.dispatch({ head, body: text, headersMs: 0, bodyMs: 0 }, post);
  }

  /** Makes the headers that all requests have, from those of the target at this time. */
  #setHeaders(): void {
    this.#headersFrom = this.#target.headers;
    this.#headers = [
      'content-type',
      'application/json',
      'accept',
      'application/json, text/event-stream',
      'mcp-protocol-version',
      this.#revision,
      ...configuredHeaders(this.#target, this.options.userAgent),
    ];
    this.#headsByHeaders = new WeakMap();
  }

  #head(standard: readonly Header[], params: readonly Header[]): RequestHead {
    if (this.#headersFrom !== this.#target.headers) this.#setHeaders();
    if (params.length > 0) return this.#buildHead([...standard, ...params]);
    let head = this.#headsByHeaders.get(standard);
    if (head === undefined) this.#headsByHeaders.set(standard, (head = this.#buildHead(standard)));
    return head;
  }

  #buildHead(headers: readonly Header[]): RequestHead {
    return new RequestHead('POST', this.#authority, this.#path, [...this.#headers, ...headers.flat()]);
  }

  forget(id: number): 'unsent' | undefined {
    const post = this.#inFlight.get(id);
    this.#inFlight.delete(id);
    return post?.cancel();
  }

  setRevision(revision: string): void {
    if (revision === this.#revision) return;
    this.#revision = revision;
    this.#setHeaders();
  }

  pause(forMs: number, about: number | undefined): void {
    if (about !== undefined && this.#inFlight.get(about)?.pause(forMs) === true)
      this.options.onLimit?.('notificationsPerSecond');
  }

  close(): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      for (const post of this.#inFlight.values()) post.cancel();
      this.#inFlight.clear();
      this.#events.onClose(closedError(this.options.upstream));
    }
    return Promise.resolve();
  }

  onText(post: UpstreamPost, text: string): void {
    readMessages(
      text,
      (message) => this.#deliver(message, post),
      (error) => this.#onMalformed(error, post),
      'result',
    );
  }

  #onMalformed(error: MessageError, post: UpstreamPost): void {
    this.options.dropped.logMalformed(post.method, error);
    if (error.limit !== undefined) this.options.onLimit?.(error.limit);
    post.blockSocketReuse();
    this.#events.onDropped(post.id);
    if (post.isAnswered) post.cancel();
    else if (post.id !== undefined && wasAnswerTo(post.id, error))
      post.fail(malformedAnswer(this.options.upstream, error));
  }

  #deliver(message: Message, post: UpstreamPost): void {
    const { id } = post;
    // The protocol allows no message after the answer.
    if (post.isAnswered) post.cancel();
    if (id === undefined || post.isAnswered || !this.#inFlight.has(id)) return;
    if (message.kind === 'result' || message.kind === 'error') {
      if (sentBackId(message.id) !== id && message.id !== 'null') {
        this.options.dropped.logUnknownAnswer(post.method);
        post.blockSocketReuse();
        this.#events.onDropped(id);
        return;
      }
      if (message.id === 'null') post.blockSocketReuse();
      this.#inFlight.delete(id);
      post.markAnswered();
      this.#events.onMessage(message.id === 'null' ? { ...message, id: String(id) } : message, id);
    } else {
      this.#events.onMessage(message, id);
    }
  }

  onDone(post: UpstreamPost): void {
    if (post.id !== undefined) this.#inFlight.delete(post.id);
  }

  onRefused(post: UpstreamPost, refused: ErrorResponse): boolean {
    const refusal = interpretErrorResponse(this.options.upstream, refused, post.id, post.method, false);
    if (refusal.kind === 'failed') this.onFailed(post, refusal.error);
    if (refusal.kind !== 'answer' || post.id === undefined) return false;
    this.#inFlight.delete(post.id);
    this.#events.onMessage(refusal.response, post.id);
    return refusal.isNamed;
  }

  onFailed(post: UpstreamPost, error: GatewayError): void {
    if (post.id === undefined || !this.#inFlight.delete(post.id)) return;
    this.#events.onSendFailed(post.id, error);
  }
}
