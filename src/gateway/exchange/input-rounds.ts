import { GatewayError } from '../../errors.ts';
import type { InputRequest } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { errorAnswer } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { downgradeInputResponse } from '../../protocol/translation/input-response.ts';
import { upgradeServerRequest } from '../../protocol/translation/upgrade.ts';
import { canBeAsked, refusalCode } from './client-capabilities.ts';
import type { ClientQuestion } from './client-question.ts';

/** Questions within this time are part of the same round. */
const COALESCE_MS = 20;
/** Questions of one call with readable names. Finding a free name takes a step for each earlier one. */
const MAX_NAMED = 1_000;

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** Returns a readable name of a question, such as `user_name` for a form with the only field `name`. */
function questionName(method: string, params: RawObject): string {
  if (method === 'sampling/createMessage') return 'model_message';
  if (method === 'roots/list') return 'client_roots';
  if (params.string('mode') === 'url') return 'user_page';
  const fields = [...(params.object('requestedSchema')?.object('properties')?.keys() ?? [])];
  const [field] = fields;
  return field !== undefined && fields.length === 1 && NAME.test(field) ? `user_${field}` : 'user_input';
}

/** The questions of a legacy upstream during one call, gathered into rounds that a modern client can answer. */
export class InputRounds {
  readonly #open = new Map<string, ClientQuestion>();
  readonly #asked = new Set<string>();
  #unnamed = 0;
  #waitingReports = 0;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #knownResponses: RawObject | undefined;
  readonly #suffix: string;
  /** True if there are open questions that the last round did not contain, or that it left unanswered. */
  #hasNewQuestions = false;
  /** Resolved when there is a question to ask. */
  #waiter: PromiseWithResolvers<'asked'> | undefined;

  /**
   * @param onLimit runs when a question is refused, because too many are open.
   * @param knownResponses input responses in the request itself, by the keys that questions will get.
   * @param suffix the end of all keys. Without one they are readable.
   */
  constructor(onLimit: (limit: LimitName) => void, knownResponses?: RawObject, suffix = '') {
    this.#suffix = suffix;
    this.#onLimit = onLimit;
    this.#knownResponses = knownResponses;
  }

  /** Adds a question to the next round. Answers it at once if the request contained the response. */
  add(question: ClientQuestion): void {
    if (this.#open.size >= LIMITS.questionsPerCall) {
      this.#onLimit('questionsPerCall');
      question.answer(errorAnswer(RPC.internalError, 'The client has too many unanswered questions'));
      return;
    }
    const key = this.#keyFor(question);
    const response = this.#knownResponses?.raw(key);
    const result = response === undefined ? undefined : downgradeInputResponse(question.method, response);
    if (result !== undefined) {
      question.answer({ kind: 'result', result });
      return;
    }
    this.#register(key, question);
  }

  #register(key: string, question: ClientQuestion): void {
    this.#open.set(key, question);
    question.onWithdrawn(() => this.#open.delete(key));
    this.#hasNewQuestions = true;
    setTimeout(() => this.#notifyWaiter(), COALESCE_MS);
  }

  /**
   * Moves the open questions to new rounds with the same keys, for a call that continues as a task. This object gets no
   * further questions.
   */
  transfer(): InputRounds {
    const successor = new InputRounds(this.#onLimit, this.#knownResponses, this.#suffix);
    for (const key of this.#asked) successor.#asked.add(key);
    successor.#unnamed = this.#unnamed;
    successor.#waitingReports = this.#waitingReports;
    for (const [key, question] of this.#open) successor.#register(key, question);
    this.#open.clear();
    return successor;
  }

  /**
   * Returns a new key for a question. It is the same each time the call is made, so that a client that repeats the call
   * can send the response with it.
   */
  #keyFor({ method, params }: ClientQuestion): string {
    // No readable name begins like this.
    if (this.#asked.size >= MAX_NAMED) return `question_${++this.#unnamed}${this.#suffix}`;
    const name = `${questionName(method, params)}${this.#suffix}`;
    let key = name;
    for (let n = 2; this.#asked.has(key); n++) key = `${name}_${n}`;
    this.#asked.add(key);
    return key;
  }

  #notifyWaiter(): void {
    if (this.#hasNewQuestions && this.#open.size > 0) this.#waiter?.resolve('asked');
  }

  /** Resolves when there are questions to ask; withdrawn ones do not count. Only one caller may wait at a time. */
  nextQuestions(): Promise<'asked'> {
    this.#waiter = Promise.withResolvers();
    this.#notifyWaiter();
    return this.#waiter.promise;
  }

  /** Returns the open questions, which form the current round. */
  openQuestions(): readonly InputRequest[] {
    this.#hasNewQuestions = false;
    return [...this.#open].map(([key, { method, params }]) => ({ key, method, params: upgradeServerRequest(params) }));
  }

  /** Refuses the open questions that a client with these capabilities cannot be asked. Returns one of them; undefined if there is none. */
  refuseBeyond(clientCapabilities: RawObject): ClientQuestion | undefined {
    let refused: ClientQuestion | undefined;
    for (const [key, question] of this.#open) {
      const { method, params } = question;
      if (canBeAsked(clientCapabilities, method, params)) continue;
      this.#open.delete(key);
      question.answer(
        errorAnswer(refusalCode(clientCapabilities, method), `The client cannot be asked for this: ${method}`),
      );
      refused = question;
    }
    return refused;
  }

  /**
   * Checks the responses before they are given to {@link answer}.
   *
   * @param waiting what waits for the answers.
   * @throws {GatewayError} `invalid-params` if a response is not a valid answer to its question, which stays open.
   */
  assertValid(responses: RawObject | undefined, upstream: string, waiting: 'call' | 'task'): void {
    for (const [key, { method }] of this.#open) {
      const raw = responses?.raw(key);
      if (raw === undefined || downgradeInputResponse(method, raw) !== undefined) continue;
      const message = `inputResponses.${key} is no valid answer to ${method}; the ${waiting} still waits for one`;
      throw new GatewayError('invalid-params', { upstream, message });
    }
  }

  /** Answers open questions with the responses of their keys. Questions without a response are asked again. */
  answer(responses: RawObject | undefined): void {
    for (const [key, question] of this.#open) {
      const raw = responses?.raw(key);
      if (raw === undefined) continue;
      this.#open.delete(key);
      const result = downgradeInputResponse(question.method, raw);
      // The caller has validated the responses before, so this is for questions that were added since.
      question.answer(
        result === undefined
          ? errorAnswer(RPC.invalidParams, 'The client gave no valid answer')
          : { kind: 'result', result },
      );
    }
    this.#hasNewQuestions = this.#open.size > 0;
  }

  /** Tells the upstreams of open questions, by progress that grows, that their client has not answered yet. */
  reportWaiting(): void {
    const params = RawObject.of({ progress: ++this.#waitingReports, message: 'waiting for the client' });
    for (const question of this.#open.values()) question.onProgress?.(params);
  }

  cancelAll(why: string): void {
    for (const [key, question] of this.#open) {
      this.#open.delete(key);
      question.answer(
        question.method === 'elicitation/create'
          ? { kind: 'result', result: '{"action":"cancel"}' }
          : errorAnswer(RPC.internalError, why),
      );
    }
  }
}
