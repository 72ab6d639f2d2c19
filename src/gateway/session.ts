import { randomInt } from 'node:crypto';
import type { Catalog } from '../catalog/catalog.ts';
import type { Offer } from '../catalog/offer.ts';
import { GatewayError, toAnswer } from '../errors.ts';
import type { RawObject } from '../protocol/json.ts';
import { quirksOf } from '../protocol/revisions.ts';
import { type Answer, type Id, notificationText, type Request, requestText } from '../protocol/jsonrpc.ts';
import type { Severity } from '../protocol/severity.ts';
import type { Link, LinkUser } from '../upstream/link.ts';
import type { Caller } from './caller.ts';
import { mirrored, profileOf } from './features.ts';
import type { ClientSession, Outlet } from './front.ts';

/** A request of ours that the client has not answered yet. */
interface Question {
  readonly answered: (answer: Answer) => void;
  readonly progressed: (params: RawObject) => void;
}

/** A subscribed resource: who owns it, and its URI there. */
export interface Subscription {
  readonly upstream: string;
  readonly uri: string;
}

/** Messages that wait for a stream to go out on. More would only be stale. */
const MAX_WAITING = 256;
const MAX_QUESTIONS = 64;

/** One request of a client and everything that belongs to it until it is answered. */
export interface Exchange {
  readonly session: Session;
  readonly request: Request;
  /** The request's own stream toward the client. */
  readonly outlet: Outlet;
  /** The client's progress token, as raw JSON; undefined when it asked for no progress. */
  readonly progressToken: string | undefined;
  /** The upstream that works on it. */
  readonly upstream: string | undefined;
  cancel(reason: string | undefined): void;
  /** Gives its room at the upstream back: at the end, or already when it is the client who is waited for. */
  leave(): void;
}

/** A legacy-era session: what is remembered of a client between its requests. */
export class Session implements ClientSession, LinkUser {
  readonly id: string;
  readonly key: string;
  readonly caller: Caller;
  readonly offered: RawObject;
  readonly profile: string;
  readonly inFlight = new Map<Id, Exchange>();
  /** Connections that serve this session, by upstream. */
  readonly links = new Map<string, Promise<Link<Exchange, Session>>>();
  /** Those of them that are ready for use. */
  readonly linked = new Map<string, Link<Exchange, Session>>();
  /** Lists as this session's own connection sees them, where they differ from everybody's. */
  readonly offers = new Map<string, Offer>();
  /** By the URI the client knows. */
  readonly subscriptions = new Map<string, Subscription>();
  logLevel: Severity | undefined;
  /** Before `notifications/initialized` a client is told nothing it did not ask for. */
  isInitialized = false;
  catalog: Catalog;
  /** Monotonic ms. */
  usedMs = performance.now();
  readonly #questions = new Map<Id, Question>();
  readonly #closed = new AbortController();
  /** Random, so that an answer meant for an earlier life of this session answers no question of this one. */
  #lastQuestion = randomInt(2 ** 47);
  #outlet: Outlet | undefined;
  #waiting: string[] = [];

  constructor(id: string, key: string, caller: Caller, catalog: Catalog) {
    this.id = id;
    this.key = key;
    this.caller = caller;
    this.catalog = catalog;
    this.offered = mirrored(caller.capabilities, quirksOf(caller.revision));
    this.profile = profileOf(this.offered);
  }

  get principal(): string {
    return this.caller.principal.key;
  }

  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Nothing is under way and nobody listens. */
  get isQuiet(): boolean {
    return this.inFlight.size === 0 && this.#outlet === undefined;
  }

  listen(outlet: Outlet): void {
    this.#outlet = outlet;
    this.usedMs = performance.now();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const text of waiting) this.#later(text);
  }

  unlisten(outlet: Outlet): void {
    if (this.#outlet === outlet) this.#outlet = undefined;
    this.usedMs = performance.now();
  }

  /** Tells the client about a request of its own, on that request's stream or the listening one. Without either it is moot. */
  tell(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean {
    const text = notificationText(method, params);
    return (exchange?.outlet.send(text) ?? false) || (this.#outlet?.send(text) ?? false);
  }

  /** Tells the client something that belongs to no request. It waits until the client listens. */
  announce(method: string, params: RawObject | undefined): void {
    this.#later(notificationText(method, params));
  }

  #later(text: string): void {
    if (this.#outlet?.send(text)) return;
    // A list that changed twice is a list that changed.
    if (this.#waiting.includes(text)) return;
    if (this.#waiting.length === MAX_WAITING) this.#waiting.shift();
    this.#waiting.push(text);
  }

  /** Sends what must arrive, on whichever stream of the client is open, the most fitting first; else it waits. */
  #insist(text: string, exchange: Exchange | undefined): void {
    if (exchange?.outlet.send(text)) return;
    if (this.#outlet?.send(text)) return;
    for (const other of this.inFlight.values()) {
      if (other.outlet.send(text)) return;
    }
    this.#later(text);
  }

  /** The request an upstream is most likely talking about when it does not say: the latest one it works on. */
  latestExchangeAt(upstream: string): Exchange | undefined {
    let latest: Exchange | undefined;
    for (const exchange of this.inFlight.values()) {
      if (exchange.upstream === upstream) latest = exchange;
    }
    return latest;
  }

  /** Asks the client. The id is ours, and names the progress the client may report. */
  ask(
    method: string,
    params: (id: number) => RawObject,
    exchange: Exchange | undefined,
    question: Question,
  ): { readonly id: Id; readonly withdraw: (reason: string) => void } {
    const number = ++this.#lastQuestion;
    const id = String(number);
    this.#questions.set(id, question);
    this.#insist(requestText(id, method, params(number)), exchange);
    return {
      id,
      withdraw: (reason) => {
        if (!this.#questions.delete(id)) return;
        const text = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":${id},"reason":${JSON.stringify(reason)}}}`;
        this.#insist(text, exchange);
      },
    };
  }

  get isAskedTooMuch(): boolean {
    return this.#questions.size >= MAX_QUESTIONS;
  }

  answered(id: Id, answer: Answer): void {
    const question = this.#questions.get(id);
    if (question === undefined) return;
    this.#questions.delete(id);
    question.answered(answer);
  }

  progressed(params: RawObject): void {
    this.#questions.get(params.raw('progressToken') ?? '')?.progressed(params);
  }

  close(): void {
    this.#closed.abort();
    this.#outlet = undefined;
    this.#waiting = [];
    const unreachable = toAnswer(new GatewayError('client-unreachable', { say: 'the session ended' }));
    for (const id of this.#questions.keys()) this.answered(id, unreachable);
    for (const exchange of this.inFlight.values()) exchange.cancel('session ended');
  }
}
