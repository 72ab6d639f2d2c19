import { ArrayMap } from '../small-collections.ts';
import { randomInt } from 'node:crypto';
import type { Catalog } from '../catalog/catalog.ts';
import { GatewayError, toAnswer } from '../errors.ts';
import type { RawObject } from '../json/json.ts';
import { type Answer, type Id, notificationText, requestText } from '../protocol/jsonrpc.ts';
import { withToken } from '../protocol/meta.ts';
import type { Caller } from './caller.ts';
import type { Addressee, Client, Exchange, Inquiry } from './exchange.ts';
import type { ClientSession, Outlet } from './front.ts';
import { isWanted } from './log-level.ts';
import { Party } from './party.ts';

/** A request of ours that the client has not answered yet. */
interface Question {
  readonly answered: (answer: Answer) => void;
  readonly progressed: (params: RawObject) => void;
}

/** Messages that wait for a stream to go out on. More would only be stale. */
const MAX_WAITING = 256;
const MAX_QUESTIONS = 64;

/** People need time; after this long the upstream is told that nobody answers. */
const ASK_LIMIT_MS = 600_000;

/** A legacy-era session: what is remembered of a client between its requests. */
export class Session extends Party implements Client, ClientSession {
  readonly id: string;
  readonly inFlight = new ArrayMap<Id, Exchange>();
  /** Before `notifications/initialized` a client is told nothing it did not ask for. */
  isInitialized = false;
  readonly #questions = new Map<Id, Question>();
  /** Random, so that an answer meant for an earlier life of this session answers no question of this one. */
  #lastQuestion = randomInt(2 ** 47);
  #outlet: Outlet | undefined;
  #waiting: string[] = [];

  constructor(id: string, key: string, caller: Caller, catalog: Catalog) {
    super(key, caller, catalog);
    this.id = id;
  }

  get isListening(): boolean {
    return this.isInitialized;
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

  isLogWanted(level: string | undefined): boolean {
    return isWanted(level, this.logLevel);
  }

  latestExchangeAt(upstream: string): Exchange | undefined {
    let latest: Exchange | undefined;
    for (const exchange of this.inFlight.values()) {
      if (exchange.upstream === upstream) latest = exchange;
    }
    return latest;
  }

  /** Nobody else uses the connections made for it, so whatever is asked on them is asked of it. */
  addresseeAt(upstream: string): Addressee {
    return { client: this, exchange: this.latestExchangeAt(upstream), isOnly: this.inFlight.size === 1 };
  }

  cannotBeAsked(): void {
    // It said so at the beginning, and the upstream has been told.
  }

  ask(inquiry: Inquiry, exchange: Exchange | undefined): void {
    if (this.#questions.size >= MAX_QUESTIONS) {
      const message = 'The client has too many unanswered questions';
      inquiry.answer({ kind: 'error', error: { code: -32603, message } });
      return;
    }
    const { method, params } = inquiry;
    const timer = setTimeout(() => {
      this.#withdraw(id, 'timed out', exchange);
      const say = `no answer to ${method} within ${ASK_LIMIT_MS / 1000} s`;
      inquiry.answer(toAnswer(new GatewayError('client-timeout', { say })));
    }, ASK_LIMIT_MS);
    timer.unref();
    // The id is ours, and names the progress the client may report.
    const number = ++this.#lastQuestion;
    const id = String(number);
    this.#questions.set(id, {
      answered: (answer) => {
        clearTimeout(timer);
        inquiry.answer(answer);
      },
      progressed: (progress) => inquiry.progressed?.(progress),
    });
    const sent = inquiry.progressed === undefined ? params : withToken(params, number);
    this.#insist(requestText(id, method, sent), exchange);
    inquiry.onWithdrawn(() => {
      clearTimeout(timer);
      this.#withdraw(id, 'the server no longer asks', exchange);
    });
  }

  #withdraw(id: Id, reason: string, exchange: Exchange | undefined): void {
    if (!this.#questions.delete(id)) return;
    const text = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":${id},"reason":${JSON.stringify(reason)}}}`;
    this.#insist(text, exchange);
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

  override close(): void {
    super.close();
    this.#outlet = undefined;
    this.#waiting = [];
    const unreachable = toAnswer(new GatewayError('client-unreachable', { say: 'the session ended' }));
    for (const id of this.#questions.keys()) this.answered(id, unreachable);
    for (const exchange of this.inFlight.values()) exchange.cancel('session ended');
  }
}
