import { ArrayMap } from '../small-collections.ts';
import type { Logger } from 'pino';
import { GatewayError, toAnswer } from '../errors.ts';
import type { ClientSession, Front, ModernCall, MessageSink } from '../gateway/front/front.ts';
import type { LimitName } from '../limits.ts';
import type { Principal } from '../policy/principal.ts';
import type { RefusalAudit } from './admission/refusal-audit.ts';
import { cancelledParams, carriedParams } from '../protocol/cancellation.ts';
import type { Envelope } from '../protocol/envelope.ts';
import {
  type Answer,
  EMPTY_RESULT,
  type Id,
  idKey,
  type Message,
  invalidAnswer,
  MessageError,
  notificationText,
  type Request,
  responseText,
} from '../protocol/jsonrpc.ts';
import { callerOf, readModern } from './modern-envelope.ts';
import { refuseBatch, refusedId, requestIn, type ClientInput, toRefusal } from './classify.ts';
import { LISTEN } from './modern-reply.ts';
import type { RunningBody } from './memory/running-bodies.ts';
import type { OpenStreams } from './streams/open-streams.ts';

export interface PeerParts {
  readonly front: Front;
  readonly principal: Principal;
  readonly view: string;
  /** Receives all messages to this client. */
  readonly sink: MessageSink;
  readonly log: Logger;
  /** Bounds subscription streams, and ends them with the credentials of their readers. Undefined for the only client of a process. */
  readonly streams?: Pick<OpenStreams, 'listenCounts' | 'addListen' | 'removeListen'>;
  /** Records refused messages; undefined if that is not done. */
  readonly refusals?: Pick<RefusalAudit, 'record'> | undefined;
  /** Called when a message exceeds a bound. */
  readonly onLimit: (limit: LimitName) => void;
  /** Called when the gateway ended the session. */
  onEnd(): void;
}

export function errorText(error: unknown, id = 'null'): string {
  return responseText(id, toAnswer(error));
}

/**
 * A client with one stream of messages in each direction, whose session ends with the streams: 2024-11-05 over
 * HTTP+SSE, or any revision over stdio.
 */
export class Peer {
  readonly #parts: PeerParts;
  /** By the key of the id. */
  readonly #calls = new ArrayMap<Id, Pick<ModernCall, 'cancel' | 'close'>>();
  /** The sender of the latest input. */
  #principal: Principal;
  #session: ClientSession | undefined;
  #opening: Promise<void> | undefined;
  #isClosed = false;
  /** Inputs that are being handled: a request until it is answered. */
  #inputCount = 0;

  constructor(parts: PeerParts) {
    this.#parts = parts;
    this.#principal = parts.principal;
  }

  get isAnswering(): boolean {
    return this.#inputCount > 0;
  }

  /**
   * Handles input of the client and sends the answer. Never rejects.
   *
   * @param principal the sender of this input, which may have other claims than before. Default: that of the input before.
   * @param body of a large request, which a call may keep beyond the answer.
   */
  async receive(input: ClientInput, principal: Principal = this.#principal, body?: RunningBody): Promise<void> {
    const { sink, log } = this.#parts;
    this.#inputCount++;
    try {
      if (principal !== this.#principal) await this.#setPrincipal(principal);
      if (!('kind' in input)) await this.#receiveBatch(input, principal);
      else if (input.kind === 'request' && input.method === 'initialize' && this.#canOpen(input)) {
        this.#opening = this.#initialize(input, principal);
        await this.#opening;
      } else if (!(await this.#receiveModern(input, principal, body))) {
        const text = await this.#answer(input, principal);
        if (text !== undefined) sink.send(text);
      }
    } catch (thrown) {
      log.error({ err: thrown }, 'message could not be handled');
      const request = requestIn(input);
      if (request !== undefined) sink.send(errorText(thrown, request.id));
    } finally {
      this.#inputCount--;
    }
  }

  async #setPrincipal(principal: Principal): Promise<void> {
    this.#principal = principal;
    const session = this.#session;
    if (session !== undefined) await this.#parts.front.findSession(session.id, principal, this.#parts.view);
  }

  /** Closes calls that have no end of their own, since no further input comes. */
  drain(): void {
    for (const call of this.#calls.values()) call.close();
  }

  /** Cancels all calls and ends the session, after the client disconnected. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const call of this.#calls.values()) call.cancel('the client has gone');
    await this.#opening;
    const session = this.#session;
    this.#session = undefined;
    if (session !== undefined && !session.closed.aborted) await this.#parts.front.endSession(session);
  }

  #canOpen(request: Request): boolean {
    return !this.#isClosed && this.#opening === undefined && readModern(request, undefined) === undefined;
  }

  /** Handles a message of the modern era, which needs no session. Returns false for other messages. */
  async #receiveModern(input: Message, principal: Principal, body: RunningBody | undefined): Promise<boolean> {
    if (input.kind === 'notification' && input.method === 'notifications/cancelled') {
      const call = this.#calls.get(idKey(input.params?.raw('requestId') ?? ''));
      if (call === undefined) return false;
      this.#parts.front.noteNotification({ principal, view: this.#parts.view }, input);
      call.cancel(input.params && carriedParams(input.params));
      return true;
    }
    const modern = readModern(input, undefined);
    if (modern === undefined) return false;
    if (modern.kind === 'refused') this.#parts.sink.send(this.#refuse(modern.error, principal, modern.id));
    else if (modern.kind === 'modern') await this.#answerModern(modern.request, modern.envelope, principal, body);
    else this.#parts.front.noteNotification({ principal, view: this.#parts.view }, modern.message);
    return true;
  }

  async #answerModern(
    request: Request,
    envelope: Envelope,
    principal: Principal,
    body: RunningBody | undefined,
  ): Promise<void> {
    const { front, view, sink, streams } = this.#parts;
    const { id } = request;
    const isListen = request.method === LISTEN;
    const key = idKey(id);
    if (this.#calls.has(key)) {
      const message = `a request with id ${id} is already in flight`;
      sink.send(errorText(new GatewayError('invalid-request', { message }), id));
      return;
    }
    // The stream may have closed while the session was looked for.
    if (this.#isClosed) return;
    const tooMany = isListen ? streams?.listenCounts.add(principal.key) : undefined;
    if (tooMany !== undefined) {
      sink.send(errorText(tooMany, id));
      return;
    }
    let isCancelled = false;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    // A cancelled request gets no response.
    const own = {
      receivedMs: performance.now(),
      send: (text: string) => {
        if (isListen) body?.release();
        return !isCancelled && sink.send(text);
      },
      answer: resolve,
      keepText: (until: Promise<unknown>) => body?.keepUntil(until),
    };
    const modern = front.handleModernRequest(request, callerOf(envelope, principal, view), own, undefined);
    const call: Pick<ModernCall, 'cancel' | 'close'> = {
      cancel: (reason) => {
        isCancelled = true;
        modern.cancel(reason);
      },
      close: () => modern.close(),
    };
    this.#calls.set(key, call);
    if (isListen) streams?.addListen(call, principal);
    const answer = await promise;
    this.#calls.delete(key);
    streams?.removeListen(call, principal.key);
    own.send(responseText(id, answer));
    // The specification asks for the result and for the notification. Clients that see the notification first report a failure.
    if (isListen && answer.kind === 'result') {
      own.send(notificationText('notifications/cancelled', cancelledParams(id, undefined)));
    }
  }

  async #initialize(request: Request, principal: Principal): Promise<void> {
    const { front, view, sink } = this.#parts;
    const { session, answer } = await front.initialize(request, principal, view);
    sink.send(responseText(request.id, answer));
    this.#session = session;
    // A refused client may send initialize again.
    if (session === undefined) this.#opening = undefined;
    else if (!this.#isClosed) {
      session.closed.addEventListener('abort', () => this.#parts.onEnd(), { once: true });
      // Another input may have come with other claims meanwhile.
      if (this.#principal !== principal) await front.findSession(session.id, this.#principal, view);
      session.setSink(sink);
    }
  }

  async #answer(message: Message, principal: Principal): Promise<string | undefined> {
    const { front, sink } = this.#parts;
    // A client may send it before `initialize` is answered, to see whether anybody is there.
    const isPing = message.kind === 'request' && message.method === 'ping';
    if (!isPing && this.#opening !== undefined) await this.#opening;
    const session = this.#session;
    if (session === undefined) {
      if (message.kind !== 'request') return undefined;
      if (isPing) return responseText(message.id, EMPTY_RESULT);
      const refusal = new GatewayError('invalid-request', { message: 'send initialize first' });
      return this.#refuse(refusal, principal, message.id);
    }
    switch (message.kind) {
      case 'request': {
        const answer = await front.handleRequest(session, message, sink, undefined, principal);
        return answer === undefined ? undefined : responseText(message.id, answer);
      }
      case 'notification':
        front.handleNotification(session, message);
        return undefined;
      case 'result':
      case 'error':
        front.handleResponse(session, message);
        return undefined;
    }
  }

  /** Records a refusal. Returns its text. */
  #refuse(error: GatewayError, principal: Principal, id?: Id): string {
    const { refusals, view } = this.#parts;
    refusals?.record({ error, view, principal });
    return errorText(error, id);
  }

  async #receiveBatch(items: readonly (Message | MessageError)[], principal: Principal): Promise<void> {
    if (this.#opening !== undefined) await this.#opening;
    const { sink, onLimit } = this.#parts;
    for (const item of items) if (item instanceof MessageError && item.limit !== undefined) onLimit(item.limit);
    const refused = refuseBatch(items, this.#session?.caller.revision);
    if (refused !== undefined) {
      sink.send(this.#refuse(refused, principal));
      return;
    }
    const answers = await Promise.all(
      items.map(async (item) => {
        if (!(item instanceof MessageError)) return await this.#answer(item, principal);
        if (item.isResponse) await this.#answer(invalidAnswer(item), principal);
        return this.#refuse(toRefusal(item), principal, refusedId(item));
      }),
    );
    const texts = answers.filter((text) => text !== undefined);
    if (texts.length > 0) sink.send(`[${texts.join(',')}]`);
  }
}
