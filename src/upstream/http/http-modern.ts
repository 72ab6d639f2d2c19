import { ArrayMap } from '../../small-collections.ts';
import type { Logger } from 'pino';
import type { HttpTarget, UpstreamTimeouts } from '../../config/config.ts';
import { GatewayError } from '../../errors.ts';
import type { Message } from '../../protocol/jsonrpc.ts';
import { TextCache } from '../../json/memo.ts';
import { MODERN } from '../../protocol/revisions.ts';
import { readRefusal, type Refused } from './http-failure.ts';
import { configuredHeaders } from './http-headers.ts';
import { readMessages } from './http-messages.ts';
import { PostExchange, type PostExchangeOwner } from './http-post.ts';
import { type HttpOptions, LATE_MS } from './http.ts';
import type { Header } from '../../protocol/mcp-headers.ts';
import { type HeaderList, RequestHead } from '../../http1/request.ts';
import type { Wire } from '../../http1/wire.ts';
import {
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
  unlessAborted,
} from '../rpc/transport.ts';

/**
 * Streamable HTTP of the modern era: every request stands alone, and what is said about it comes with its answer.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
 */
export function modernHttpTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return (events, signal) =>
    unlessAborted(options.upstream, signal, () => new ModernHttpTransport(target, options, events));
}

const NONE: readonly Header[] = [];

function headerIn(line: string): Header {
  const at = line.indexOf(':');
  return [line.slice(0, at), line.slice(at + 1)];
}

class ModernHttpTransport implements Transport, PostExchangeOwner {
  readonly upstream: string;
  readonly messageBytes: number;
  /** Each request stands alone. */
  readonly mayKeepState = false;
  readonly #authority: string;
  readonly #path: string;
  readonly #headers: HeaderList;
  readonly #wire: Wire;
  /** Most requests are like one before: by the headers they have in common with it, and by all of them. */
  readonly #plainHeads = new WeakMap<readonly Header[], RequestHead>();
  readonly #heads = new TextCache<RequestHead>();
  readonly #timeouts: UpstreamTimeouts;
  readonly #log: Logger;
  readonly #events: TransportEvents;
  readonly #onPause: (() => void) | undefined;
  readonly #inFlight = new ArrayMap<number, PostExchange>();
  #isOver = false;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    const { host, pathname, search } = new URL(target.url);
    this.upstream = options.upstream;
    this.messageBytes = options.messageBytes;
    this.#authority = host;
    this.#path = pathname + search;
    this.#headers = [
      'content-type',
      'application/json',
      'accept',
      'application/json, text/event-stream',
      'mcp-protocol-version',
      MODERN,
      ...configuredHeaders(target, options.userAgent),
    ];
    this.#wire = options.wire;
    this.#timeouts = options.timeouts;
    this.#log = options.log;
    this.#events = events;
    this.#onPause = options.onPause;
  }

  /** Only requests: what a client may notify is said by closing the request's stream. */
  send({ id, method, text, headers = NONE, params = NONE }: Outgoing): void {
    if (this.#isOver || id === undefined) return;
    const post = new PostExchange(this, id, method, true);
    this.#inFlight.set(id, post);
    const { firstByteMs, callMs } = this.#timeouts;
    const headersMs = Math.max(firstByteMs, callMs + LATE_MS);
    this.#wire.dispatch({ head: this.#head(headers, params), body: text, headersMs, bodyMs: 0 }, post);
  }

  #head(headers: readonly Header[], params: readonly Header[]): RequestHead {
    if (params.length > 0) {
      // No value holds a line break, and no name a colon.
      const lines = [...headers, ...params].map(([name, value]) => `${name}:${value}`).join('\n');
      return this.#heads.of(lines, (own) => this.#headOf(own.split('\n').map(headerIn)));
    }
    let head = this.#plainHeads.get(headers);
    if (head === undefined) this.#plainHeads.set(headers, (head = this.#headOf(headers)));
    return head;
  }

  #headOf(headers: readonly Header[]): RequestHead {
    return new RequestHead('POST', this.#authority, this.#path, [...this.#headers, ...headers.flat()]);
  }

  forget(id: number): void {
    const post = this.#inFlight.get(id);
    this.#inFlight.delete(id);
    post?.cancel();
  }

  setRevision(): void {
    // Every request names its revision itself.
  }

  pause(forMs: number, about: number | undefined): void {
    if (about !== undefined && this.#inFlight.get(about)?.pause(forMs) === true) this.#onPause?.();
  }

  close(): Promise<void> {
    if (!this.#isOver) {
      this.#isOver = true;
      for (const post of this.#inFlight.values()) post.cancel();
      this.#inFlight.clear();
      const { upstream } = this;
      const message = `the connection to upstream "${upstream}" was closed`;
      this.#events.onClose(new GatewayError('upstream-lost', { upstream, message }));
    }
    return Promise.resolve();
  }

  onAccepted(): void {
    // Its headers say nothing that the body does not.
  }

  onText(post: PostExchange, text: string): void {
    readMessages(
      text,
      (message) => this.#deliver(message, post),
      (error) => {
        this.#log.warn({ upstream: this.upstream, method: post.method, err: error }, 'not a message, dropped');
        post.doubt();
        const message = `upstream "${this.upstream}" answered with something that is not JSON-RPC`;
        if (!post.isAnswered)
          post.fail(new GatewayError('upstream-protocol', { upstream: this.upstream, message }, error));
      },
      'result',
      post.isAscii,
    );
  }

  #deliver(message: Message, post: PostExchange): void {
    const { id } = post;
    // Nothing may follow the answer.
    if (post.isAnswered) post.doubt();
    if (id === undefined || post.isAnswered || !this.#inFlight.has(id)) return;
    if (message.kind === 'result' || message.kind === 'error') {
      if (message.id !== String(id) && message.id !== 'null') {
        this.#log.warn({ upstream: this.upstream, method: post.method }, 'answer to no request, dropped');
        post.doubt();
        return;
      }
      if (message.id === 'null') post.doubt();
      this.#inFlight.delete(id);
      post.markAnswered();
      this.#events.onMessage(message.id === 'null' ? { ...message, id: String(id) } : message, id);
    } else {
      this.#events.onMessage(message, id);
    }
  }

  onDone(post: PostExchange): void {
    if (post.id !== undefined) this.#inFlight.delete(post.id);
  }

  onRefused(post: PostExchange, refused: Refused): boolean {
    const refusal = readRefusal(this.upstream, refused, post.id, post.method, false);
    if (refusal.kind === 'failed') this.onFailed(post, refusal.error);
    if (refusal.kind !== 'answer' || post.id === undefined) return false;
    this.#inFlight.delete(post.id);
    this.#events.onMessage(refusal.response, post.id);
    return refusal.isNamed;
  }

  /** Event ids mean nothing here: a stream that broke is lost, and so is the request. */
  onBroken(post: PostExchange): void {
    const { upstream } = this;
    const message = `upstream "${upstream}" broke the stream of the answer`;
    this.onFailed(post, new GatewayError('upstream-lost', { upstream, message }));
  }

  onFailed(post: PostExchange, error: GatewayError): void {
    if (post.id === undefined || !this.#inFlight.delete(post.id)) return;
    this.#events.onSendFailed(post.id, error);
  }
}
