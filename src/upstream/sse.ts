import type { HttpTarget } from '../config/config.ts';
import { GatewayError } from '../errors.ts';
import type { MessageError } from '../protocol/jsonrpc.ts';
import type { HttpOptions } from './http.ts';
import { readRefusal, type Refused, statusFailure } from './http-failure.ts';
import { EventGet, type StreamEnd } from './http-get.ts';
import { readMessages } from './http-messages.ts';
import { Outbox } from './http-outbox.ts';
import { Post, type PostOwner } from './http-post.ts';
import { HttpSession } from './http-session.ts';
import type { Outgoing, StartTransport, Transport, TransportEvents } from './transport.ts';

/**
 * HTTP+SSE of 2024-11-05: everything comes on one stream, opened first, whose first event names where to POST to.
 *
 * @see https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
 */
export function sseTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return async (events, signal) => {
    const transport = new SseTransport(target, options, events);
    await transport.start(signal);
    return transport;
  };
}

class SseTransport implements Transport, PostOwner {
  readonly upstream: string;
  readonly messageBytes: number;
  readonly #target: HttpTarget;
  readonly #options: HttpOptions;
  readonly #events: TransportEvents;
  readonly #stream: EventGet;
  readonly #posts = new Set<Post>();
  readonly #outbox = new Outbox((message) => this.#post(message));
  readonly #named = Promise.withResolvers<void>();
  #endpoint: HttpSession | undefined;
  #isOver = false;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    this.upstream = options.upstream;
    this.messageBytes = options.messageBytes;
    this.#target = target;
    this.#options = options;
    this.#events = events;
    const position = { lastEventId: '', retryMs: undefined };
    this.#stream = new EventGet(this.upstream, position, this.messageBytes, {
      opened: () => undefined,
      event: (type, data) => this.#heard(type, data),
      ended: (end) => this.#ended(end),
    });
  }

  /** Resolves when the server has said where to POST to. @throws {GatewayError} */
  async start(signal: AbortSignal): Promise<void> {
    const { wire, timeouts, userAgent } = this.#options;
    const giveUp = (what: string) => {
      const say = `upstream "${this.upstream}" ${what}`;
      this.#named.reject(new GatewayError('upstream-unavailable', { upstream: this.upstream, say }, signal.reason));
    };
    const abort = () => giveUp('is being disconnected');
    const limitMs = timeouts.connectMs + timeouts.firstByteMs;
    const timer = setTimeout(() => giveUp(`did not name its endpoint within ${limitMs / 1_000} s`), limitMs);
    signal.addEventListener('abort', abort, { once: true });
    try {
      if (signal.aborted) abort();
      else {
        const get = new HttpSession(this.#target, userAgent).get({ lastEventId: '', retryMs: undefined });
        wire.dispatch(get, this.#stream);
      }
      await this.#named.promise;
    } catch (thrown) {
      this.#isOver = true;
      this.#stream.cancel();
      throw thrown;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    }
  }

  send(message: Outgoing): void {
    if (!this.#isOver) this.#outbox.send(message);
  }

  forget(id: number): void {
    this.#outbox.forget(id);
    for (const post of this.#posts) {
      if (post.id !== id) continue;
      this.#posts.delete(post);
      post.cancel();
    }
  }

  settled(revision: string): void {
    this.#endpoint?.settled(revision);
  }

  close(): Promise<void> {
    const { upstream } = this;
    const say = `the connection to upstream "${upstream}" was closed`;
    this.#finish(new GatewayError('upstream-lost', { upstream, say }));
    return Promise.resolve();
  }

  accepted(post: Post): void {
    this.#outbox.arrived(post.method);
  }

  text(_post: Post, text: string): void {
    this.#read(text);
  }

  done(post: Post): void {
    this.#settle(post);
  }

  refused(post: Post, refused: Refused): boolean {
    const refusal = readRefusal(this.upstream, refused, post.id, post.method, false);
    if (refusal.kind === 'answer') {
      this.#settle(post);
      this.#events.message(refusal.response, undefined);
      return refusal.isNamed;
    }
    this.failed(post, refusal.kind === 'failed' ? refusal.error : statusFailure(this.upstream, refused));
    return false;
  }

  broken(post: Post): void {
    this.#settle(post);
  }

  failed(post: Post, error: GatewayError): void {
    this.#settle(post);
    if (post.id !== undefined) this.#events.failed(post.id, error);
    else this.#options.log.warn({ upstream: this.upstream, method: post.method, err: error }, 'message not delivered');
  }

  #post(message: Outgoing): void {
    if (this.#endpoint === undefined || this.#isOver) return;
    const post = new Post(this, message.id, message.method, false);
    this.#posts.add(post);
    const { firstByteMs } = this.#options.timeouts;
    this.#options.wire.dispatch(this.#endpoint.post(message.text, firstByteMs, firstByteMs), post);
  }

  #settle(post: Post): void {
    this.#posts.delete(post);
    this.#outbox.arrived(post.method);
  }

  #heard(type: string, data: string): void {
    if (type === 'message' && data !== '') this.#read(data);
    else if (type === 'endpoint' && this.#endpoint === undefined) this.#nameEndpoint(data);
  }

  #nameEndpoint(endpoint: string): void {
    const { upstream } = this;
    const here = this.#target.url;
    const url = URL.parse(endpoint.trim(), here);
    if (url === null || url.origin !== new URL(here).origin) {
      // Our credentials would go wherever it says.
      const say = `upstream "${upstream}" named an endpoint that is not on its own origin`;
      this.#named.reject(new GatewayError('upstream-protocol', { upstream, say, executed: 'no' }));
      return;
    }
    this.#endpoint = new HttpSession({ ...this.#target, url: url.href }, this.#options.userAgent);
    this.#named.resolve();
  }

  #read(text: string): void {
    readMessages(
      text,
      (message) => {
        if (!this.#isOver) this.#events.message(message, undefined);
      },
      (error) => this.#malformed(error),
    );
  }

  /** Fails the request that the text answers, where its id can still be read. */
  #malformed(error: MessageError): void {
    const { upstream } = this;
    this.#options.log.warn({ upstream, err: error }, 'not a message, dropped');
    if (this.#isOver || !/^\d+$/.test(error.id)) return;
    const say = `upstream "${upstream}" answered with something that is not JSON-RPC`;
    this.#events.failed(Number(error.id), new GatewayError('upstream-protocol', { upstream, say }, error));
  }

  #ended(end: StreamEnd): void {
    const error = this.#failure(end);
    if (this.#endpoint !== undefined) {
      this.#finish(error);
      return;
    }
    const code = error.code === 'upstream-lost' ? 'upstream-unavailable' : error.code;
    this.#named.reject(new GatewayError(code, { ...error.detail, executed: 'no' }, error.cause));
  }

  #failure(end: StreamEnd): GatewayError {
    const { upstream } = this;
    switch (end.kind) {
      case 'broken':
      case 'unreadable':
        return end.error;
      case 'refused':
        return statusFailure(upstream, { ...end, body: undefined });
      case 'ended':
        return new GatewayError('upstream-lost', { upstream, say: `upstream "${upstream}" ended its event stream` });
    }
  }

  #finish(error: GatewayError): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stream.cancel();
    for (const post of this.#posts) post.cancel();
    this.#posts.clear();
    this.#events.closed(error);
  }
}
