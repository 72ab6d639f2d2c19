import { ArraySet } from '../../small-collections.ts';
import { randomInt } from 'node:crypto';
import { setLatest } from '../../map-entries.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import { isSameRestriction } from '../../catalog/restriction.ts';
import type { SessionRef } from '../../store/session-store.ts';
import { GatewayError, toAnswer } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { visibleText } from '../../catalog/items/texts.ts';
import { shownText } from '../../peer-text.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { Principal } from '../../policy/principal.ts';
import { type Answer, errorAnswer, type Id, notificationText, requestText } from '../../protocol/jsonrpc.ts';
import { type CancelReason, cancelledParams } from '../../protocol/cancellation.ts';
import { withToken } from '../../protocol/meta.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { endOfQuestion, nameOf } from '../../telemetry/tracing/mcp-spans.ts';
import type { Caller } from '../front/caller.ts';
import type { ClientQuestion } from '../exchange/client-question.ts';
import type { Recipient, Client, Exchange } from '../exchange/exchange.ts';
import type { ClientSession, MessageSink, Owner } from '../front/front.ts';
import type { Severity } from '../../protocol/severity.ts';
import { SessionClient } from './session-client.ts';
import { WaitingMessages } from './waiting-messages.ts';
import { sentBackId } from '../../upstream/rpc/request-ids.ts';
import { isWanted } from '../exchange/log-level.ts';
import { ConnectionHolder, type Link } from '../exchange/connection-holder.ts';

interface PendingQuestion {
  readonly resolve: (answer: Answer) => void;
  readonly onProgress: (params: RawObject) => void;
}

/** The shortest time between two ends of an event stream by the same scopes. A client may use two tokens side by side. */
const STEP_UP_MS = 60_000;

/** Sets of scopes that are remembered for a session. Beyond it, the oldest is forgotten, and may end a stream again. */
const MAX_STEPS = 16;

function scopesKey({ scopes }: Principal): string {
  return scopes.toSorted().join(' ');
}

/** The reason of a question that ends without one of its upstream. */
const NO_LONGER_ASKED = 'the server no longer asks';

/** Returns what an upstream says about the end of its question, with a reason that can be shown to a user. */
function shownCancellation(cancelled: RawObject): RawObject {
  const reason = shownText(visibleText(cancelled.string('reason') ?? NO_LONGER_ASKED));
  return cancelled.with('reason', JSON.stringify(reason));
}

function sessionEnded(): GatewayError {
  return new GatewayError('client-unreachable', { message: 'the session ended' });
}

/** The time that a user has to answer. Then the upstream gets an error. */
export const ASK_LIMIT_MS = 600_000;

export interface SessionEvents {
  /** An upstream begins to keep state for the session. See {@link ConnectionHolder.onStateKept}. */
  onStateKept(session: Session, upstream: string): Promise<void> | undefined;
  onLinkOpen(session: Session, link: Link): void;
  /** Another principal object, whose claims may differ, judges what runs without a request from now on. */
  onPrincipalChange(session: Session): void;
  /** Returns whether a token of the same principal has scopes that another one lacks; see {@link Gate.hasFurtherScopes}. */
  hasFurtherScopes(before: Caller, after: Principal): boolean;
  /** Returns the catalog of the session for the claims of this principal object. */
  catalogOf(session: Session, principal: Principal): Catalog;
  readonly onLimit: (limit: LimitName) => void;
  /** Runs for each message that is dropped, because too many wait for a stream. */
  readonly onDropped: () => void;
}

/** The session of a legacy client: the state between its requests. */
export class Session extends ConnectionHolder implements Client, ClientSession {
  readonly id: string;
  /** The key of the session in the store. */
  readonly ref: SessionRef;
  readonly isOneClient = true;
  readonly rounds = undefined;
  /** In the order of their arrival. Several may have the same id, each with a sink of its own. */
  readonly inFlight = new ArraySet<Exchange>();
  /**
   * True if the client has sent `notifications/initialized`. Before that it gets no unsolicited messages. Questions about its own requests do reach it:
   * some clients never send the notification.
   */
  isInitialized = false;
  /** The process that had the session before this one, and may have requests of it in flight. */
  former: Owner | undefined;
  /**
   * True if the client has had an event stream, or may have had one at an earlier process. Some clients do not open it again after its end, such
   * as the Java SDK (2.1.0). While there is none, messages that wait go before the answer of the next request.
   */
  hadStream = false;
  readonly #questions = new Map<Id, PendingQuestion>();
  /**
   * Begins at a random number, so that an answer to a question from before a restart answers no question of this
   * process. Stays below 2^31, since some clients read ids into 32-bit integers.
   */
  #lastQuestion = randomInt(2 ** 30);
  #sink: MessageSink | undefined;
  /** True if the sink is an event stream that was opened with the credentials of {@link caller}. */
  #hasReader = false;
  /** The last time that a token ended an event stream, by its scopes: it may have several principal objects. Undefined until there is one. Monotonic ms. */
  #steppedUpMs: Map<string, number> | undefined;
  /** The client with the credentials of the latest request. */
  #client: SessionClient | undefined;
  readonly #waiting = new WaitingMessages(() => this.#events.onDropped());

  readonly #events: SessionEvents;
  /** The object of `caller`, whose principal changes. */
  readonly #caller: { principal: Principal };

  constructor(id: string, key: string, ref: SessionRef, caller: Caller, catalog: Catalog, events: SessionEvents) {
    const own = { ...caller };
    super(key, own, catalog);
    this.#caller = own;
    this.id = id;
    this.ref = ref;
    this.#events = events;
  }

  /** Returns the session that the client's edge passes on. @throws {TypeError} if another front has made it. */
  static from(session: ClientSession): Session {
    if (#sink in session) return session;
    throw new TypeError('this session belongs to another front');
  }

  get lasting(): this {
    return this;
  }

  get senderKey(): string {
    return this.key;
  }

  /**
   * Handles the arrival of a request. What runs without a request, such as notifications, has the rights of the request that opened the event
   * stream. Without such a stream it has those of the latest request. A client that has got further scopes has to open the stream again.
   */
  onRequestOf(principal: Principal): void {
    if (this.#hasReader && this.#hasSteppedUp(principal)) {
      setLatest((this.#steppedUpMs ??= new Map()), scopesKey(principal), performance.now(), MAX_STEPS);
      this.#sink?.interrupt?.();
    }
    if (!this.#hasReader) this.setPrincipal(principal);
  }

  /** Returns whether a token has other rights than that of the event stream, by further scopes. False for one that has ended a stream just now. */
  #hasSteppedUp(principal: Principal): boolean {
    if (principal === this.#caller.principal || !this.#events.hasFurtherScopes(this.caller, principal)) return false;
    const endedMs = this.#steppedUpMs?.get(scopesKey(principal)) ?? -Infinity;
    if (performance.now() - endedMs < STEP_UP_MS) return false;
    return !isSameRestriction(this.#events.catalogOf(this, principal).restriction, this.catalog.restriction);
  }

  /** Sets the claims by which is judged what runs without a request. It is the same principal. */
  setPrincipal(principal: Principal): void {
    if (this.#caller.principal === principal) return;
    this.#caller.principal = principal;
    this.#events.onPrincipalChange(this);
  }

  /** Returns the client with the credentials of one request. */
  clientOf(principal: Principal): SessionClient {
    if (this.#client?.caller.principal !== principal) {
      this.#client = new SessionClient(this, principal, (one) => this.#events.catalogOf(this, one));
    }
    return this.#client;
  }

  onRightsChange(): void {
    // Messages that wait were made with other rights.
    this.#waiting.removeContents();
  }

  onStateKept(upstream: string): Promise<void> | undefined {
    return this.#events.onStateKept(this, upstream);
  }

  onLinkOpen(link: Link): void {
    this.#events.onLinkOpen(this, link);
  }

  onSubscriptionLost(uri: string, upstream: string): void {
    // It stays stored: another token, or a later reload, may allow it.
    (this.unresolved ??= new Map()).set(uri, upstream);
  }

  get handle(): string {
    return this.id;
  }

  get wantsListChanges(): boolean {
    return this.isInitialized;
  }

  isExpired(nowMs: number): boolean {
    return nowMs >= this.ref.expiresMs;
  }

  /** Returns whether no request is in flight and no stream is open. */
  get isQuiet(): boolean {
    return this.inFlight.size === 0 && this.#sink === undefined;
  }

  /** Returns whether the session can be released without loss: it is quiet, and no upstream keeps state for it. */
  get isReleasable(): boolean {
    return this.isQuiet && this.linkPromises.size === 0;
  }

  addExchange(exchange: Exchange): void {
    this.inFlight.add(exchange);
  }

  /**
   * Sends the messages that wait before the answer of a request, if there is no stream; see {@link hadStream}. They are for the current principal:
   * another request may have brought other claims.
   */
  sendWaiting({ client, sink }: Exchange): void {
    if (this.#sink !== undefined || !this.hadStream || client.caller.principal !== this.caller.principal) return;
    for (const text of this.#waiting.removeAll()) {
      if (!sink.send(text)) this.#waiting.add(text);
    }
  }

  removeExchange(exchange: Exchange): void {
    this.inFlight.delete(exchange);
  }

  exchanges(): Iterable<Exchange> {
    return this.inFlight;
  }

  get streamCount(): number {
    return this.#sink === undefined ? 0 : 1;
  }

  setSink(sink: MessageSink, reader?: Principal): void {
    if (reader !== undefined) this.setPrincipal(reader);
    this.#hasReader = reader !== undefined;
    this.#sink = sink;
    this.usedMs = performance.now();
    for (const text of this.#waiting.removeAll()) this.#queue(text);
  }

  removeSink(sink: MessageSink): void {
    if (this.#sink === sink) {
      this.#sink = undefined;
      this.#hasReader = false;
      this.hadStream = true;
    }
    this.usedMs = performance.now();
  }

  /**
   * Sends a notification about a request of the client, on that request's stream or on the listening stream. Returns
   * false if neither accepts it; the notification is then dropped.
   */
  notify(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean {
    const text = notificationText(method, params);
    return (exchange?.sink.send(text) ?? false) || (this.#sink?.send(text) ?? false);
  }

  /** Sends a notification that belongs to no request. It waits until the client opens a stream; see also {@link hadStream}. */
  announce(method: string, params: RawObject | undefined): void {
    this.#queue(notificationText(method, params));
  }

  onTaskChange(): void {
    // A session gets `notifications/tasks/status` about its own tasks only.
  }

  sendLog(level: Severity, params: RawObject): void {
    const hasLogging = this.catalog.capabilities.raw('logging') !== undefined;
    if (hasLogging && this.wantsLog(level)) this.announce('notifications/message', params);
  }

  #queue(text: string): boolean {
    return this.#sink?.send(text) === true || this.#waiting.add(text);
  }

  /**
   * Sends a message that must arrive. It goes to the stream of its request, else to any open stream of the client, else to the next one.
   * Returns false if too many wait for that.
   */
  #deliver(text: string, exchange: Exchange | undefined): boolean {
    if (exchange?.sink.send(text)) return true;
    if (this.#sink?.send(text)) return true;
    for (const other of this.inFlight) {
      if (other.sink.send(text)) return true;
    }
    return this.#queue(text);
  }

  wantsLog(level: string | undefined, unset?: Severity): boolean {
    return isWanted(level, this.logLevel ?? unset);
  }

  /** Returns this session: it is the only user of its links, so every question on them is for it. */
  recipientAt(upstream: string): Recipient {
    return { client: this, exchange: this.latestExchangeAt(upstream), isUnambiguous: this.inFlight.size === 1 };
  }

  onUnsupportedRequest(): void {
    // The upstream knows the client's capabilities from `initialize`; the refusal is enough.
  }

  ask(question: ClientQuestion, exchange: Exchange | undefined): void {
    if (this.closed.aborted) {
      question.answer(toAnswer(sessionEnded()));
      return;
    }
    if (this.#questions.size >= LIMITS.questionsPerSession) {
      this.#events.onLimit('questionsPerSession');
      const message = 'The client has too many unanswered questions';
      question.answer(errorAnswer(RPC.internalError, message));
      return;
    }
    const { method, params, upstream } = question;
    const span = exchange?.span?.child('client', nameOf(method));
    const endSpan = (answer: Answer | GatewayError) => span?.end(endOfQuestion(method, answer, upstream));
    const timer = setTimeout(() => {
      this.#withdraw(id, 'timed out', exchange);
      const late = new GatewayError('client-timeout', {
        message: `no answer to ${method} within ${ASK_LIMIT_MS / 1000} s`,
      });
      endSpan(late);
      question.answer(toAnswer(late));
    }, ASK_LIMIT_MS);
    timer.unref();
    // The id is also the progress token.
    const number = ++this.#lastQuestion;
    const id = String(number);
    this.#questions.set(id, {
      resolve: (answer) => {
        clearTimeout(timer);
        endSpan(answer);
        question.answer(answer);
      },
      onProgress: (progress) => question.onProgress?.(progress),
    });
    const sent = question.onProgress === undefined ? params : withToken(params, number);
    if (!this.#deliver(requestText(id, method, sent), exchange)) {
      const message = 'the client has no stream, and too many messages wait for it';
      this.onResponse(id, toAnswer(new GatewayError('client-unreachable', { message })));
      return;
    }
    question.onWithdrawn((cancelled) => {
      clearTimeout(timer);
      endSpan(new GatewayError('cancelled'));
      this.#withdraw(id, cancelled === undefined ? NO_LONGER_ASKED : shownCancellation(cancelled), exchange);
    });
  }

  #withdraw(id: Id, reason: CancelReason, exchange: Exchange | undefined): void {
    if (!this.#questions.delete(id)) return;
    this.#deliver(notificationText('notifications/cancelled', cancelledParams(id, reason)), exchange);
  }

  /** Handles an answer of the client. Returns false if the gateway has not asked this question here. */
  onResponse(sentBack: Id, answer: Answer): boolean {
    const id = String(sentBackId(sentBack));
    const question = this.#questions.get(id);
    if (question === undefined) return false;
    this.#questions.delete(id);
    question.resolve(answer);
    return true;
  }

  /** Handles progress of the client with a question. Returns false if the gateway has not asked it here. */
  onProgress(params: RawObject): boolean {
    const question = this.#questions.get(String(sentBackId(params.raw('progressToken'))));
    question?.onProgress(params);
    return question !== undefined;
  }

  override close(): void {
    super.close();
    this.#sink = undefined;
    this.#waiting.removeAll();
    const unreachable = toAnswer(sessionEnded());
    for (const id of this.#questions.keys()) this.onResponse(id, unreachable);
    for (const exchange of this.inFlight) exchange.cancel('session ended');
  }
}
