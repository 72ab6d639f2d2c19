import { refusalText } from '../downstream/admission/refusal.ts';
import { STUCK_MS } from '../downstream/streams/event-stream.ts';
import { GatewayError } from '../errors.ts';
import type { ClientRequest, ClientResponse } from '../gateway/front/client-http.ts';
import type { ForwardOutcome } from '../telemetry/replica-metrics.ts';
import { answeredHeaders, selectedHeaders } from './forwarded-head.ts';
import type { ForwardedResponseHead } from './frames.ts';
import { GONE, isMisdirected } from './internal-server.ts';
import { type ChannelExchange, type ExchangeHandler, headTooLarge } from './outgoing-channel.ts';

/** Statuses whose responses have no body and no length. */
const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** A request of a client on its way to the replica that has its session. Bodies are passed on as bytes, in both directions. */
export class RelayedRequest implements ExchangeHandler {
  readonly #incoming: ClientRequest;
  readonly #outgoing: ClientResponse;
  readonly #ended = Promise.withResolvers<ForwardOutcome>();
  #exchange: ChannelExchange | undefined;
  #isEnded = false;
  /** False if the body of the request is a text, which can be sent again. */
  #isUnread = true;
  /** True if the address of the member has another process by now. */
  isMemberGone = false;
  /** Bytes of the response that the client has not read yet. */
  #unreadBytes = 0;
  #isStalled = false;
  /** True once the response was slow, so that `drain` events are handled. */
  #awaitsDrain = false;

  constructor(incoming: ClientRequest, outgoing: ClientResponse) {
    this.#incoming = incoming;
    this.#outgoing = outgoing;
  }

  /** Resolves when the response is written. Never rejects. */
  get outcome(): Promise<ForwardOutcome> {
    return this.#ended.promise;
  }

  static hasBody({ headers }: Pick<ClientRequest, 'headers'>): boolean {
    const length = headers['content-length'];
    return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
  }

  /** Passes on the body of the request. @param exchange undefined if the head is too large. @param text the body, if it was read. */
  start(exchange: ChannelExchange | undefined, text: string | undefined): void {
    if (exchange === undefined) {
      this.#refuse(headTooLarge(), 'refused');
      return;
    }
    this.#exchange = exchange;
    const { body } = exchange;
    const incoming = this.#incoming;
    this.#outgoing.once('close', this.#onGone);
    if (this.#outgoing.destroyed) this.#onGone();
    if (this.#isEnded) return;
    this.#isUnread = text === undefined;
    if (text !== undefined) body.end(Buffer.from(text));
    if (text !== undefined || !RelayedRequest.hasBody(incoming)) return;
    let leftBytes = Number(incoming.headers['content-length'] ?? Infinity);
    incoming.on('data', (chunk) => {
      // The body of a request that is answered already is read and dropped.
      if (this.#isEnded) return;
      leftBytes -= chunk.length;
      if (leftBytes === 0) body.end(chunk);
      else if (!body.write(chunk)) incoming.pause();
    });
    incoming.on('end', () => body.end());
    // A `close` event of the response follows.
    incoming.on('error', () => undefined);
  }

  onResponse({ status, headers }: ForwardedResponseHead, piece: Buffer, isLast: boolean): void {
    const outgoing = this.#outgoing;
    const passedOn = answeredHeaders(headers);
    if (!isLast) {
      outgoing.writeHead(status, passedOn);
      outgoing.flushHeaders();
      this.onData(piece, false);
      return;
    }
    const length = BODILESS.has(status) ? [] : ['content-length', String(piece.length)];
    outgoing.writeHead(status, [...selectedHeaders(passedOn, (name) => name !== 'content-length'), ...length]);
    // Node writes a head and a text at once, but a head and bytes one after the other.
    outgoing.end(piece.toString('latin1'), 'latin1');
    this.#end('answered');
  }

  onData(piece: Buffer, isLast: boolean): void {
    const outgoing = this.#outgoing;
    if (isLast) {
      outgoing.end(piece);
      this.#end('answered');
      return;
    }
    if (piece.length === 0) return;
    this.#unreadBytes += piece.length;
    if (outgoing.write(piece)) this.#onRead();
    else this.#onStalled();
  }

  onRefused(status: number): void {
    this.isMemberGone = status === GONE;
    const isElsewhere = isMisdirected(status);
    if (isElsewhere && !this.#isUnread) {
      this.#end('misdirected');
      return;
    }
    const message = isElsewhere
      ? 'the session moved to another process at this moment; send the request again'
      : 'the process that has the session did not accept the request; send it again';
    this.#refuse(new GatewayError('store-unavailable', { message }), isElsewhere ? 'misdirected' : 'refused');
  }

  onBroken(): void {
    if (this.#isEnded) return;
    if (this.#outgoing.headersSent) {
      this.#end('broken');
      // The client sees a broken stream, which it can resume.
      this.#outgoing.destroy();
      return;
    }
    const message = 'the connection to the process that has the session broke; check what the request did';
    this.#refuse(new GatewayError('outcome-unknown', { message }), 'broken');
  }

  onDrained(): void {
    this.#incoming.resume();
  }

  /** The client has disconnected. */
  readonly #onGone = (): void => {
    if (this.#isEnded) return;
    this.#exchange?.reset();
    this.#end('abandoned');
  };

  #onRead(): void {
    this.#exchange?.received.consume(this.#unreadBytes);
    this.#unreadBytes = 0;
  }

  #onStalled(): void {
    const outgoing = this.#outgoing;
    this.#isStalled = true;
    outgoing.setTimeout(STUCK_MS);
    if (this.#awaitsDrain) return;
    this.#awaitsDrain = true;
    outgoing.on('drain', () => {
      if (!this.#isStalled || this.#isEnded) return;
      this.#isStalled = false;
      outgoing.setTimeout(0);
      this.#onRead();
    });
  }

  #refuse(error: GatewayError, outcome: ForwardOutcome): void {
    const text = refusalText(error);
    this.#outgoing.writeHead(error.row.http, {
      'content-type': 'application/json',
      'cache-control': 'no-store',
      'content-length': Buffer.byteLength(text),
    });
    this.#outgoing.end(text);
    this.#end(outcome);
  }

  #end(outcome: ForwardOutcome): void {
    this.#isEnded = true;
    this.#outgoing.removeListener('close', this.#onGone);
    // An unread body would keep the connection of the client from its next request.
    if (!this.#incoming.complete) this.#incoming.resume();
    this.#ended.resolve(outcome);
  }
}
