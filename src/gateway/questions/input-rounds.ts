import type { InputRequest } from '../../protocol/input-required.ts';
import { JsonTextError, type RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { downgradeInputResponse } from '../../protocol/input-response.ts';
import { upgradeServerRequest } from '../../protocol/upgrade.ts';
import { LATEST_LEGACY } from '../../protocol/revisions.ts';
import type { ClientQuestion } from '../exchange/exchange.ts';

/** Questions this close together are asked at once. */
const COALESCE_MS = 20;
const MAX_OPEN = 64;

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

function errorAnswer(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/** What is asked, and of whom: `user_name` for a form with the one field `name`. */
function nameOf(method: string, params: RawObject): string {
  if (method === 'sampling/createMessage') return 'model_message';
  if (method === 'roots/list') return 'client_roots';
  if (params.string('mode') === 'url') return 'user_page';
  const fields = [...(params.object('requestedSchema')?.object('properties')?.keys() ?? [])];
  const [field] = fields;
  return field !== undefined && fields.length === 1 && NAME.test(field) ? `user_${field}` : 'user_input';
}

/** What a legacy upstream wants to know while it works on one call, gathered into rounds that a modern client can answer. */
export class InputRounds {
  readonly #open = new Map<string, ClientQuestion>();
  readonly #asked = new Set<string>();
  readonly #given: RawObject | undefined;
  /** There are questions that the client has not been asked, or has left open. */
  #isNew = false;
  /** Of whoever waits for something to ask. */
  #waiter: PromiseWithResolvers<'asked'> | undefined;

  /** @param given answers that came with the request itself, by the keys that questions get. */
  constructor(given?: RawObject) {
    this.#given = given;
  }

  /** Takes a question; it is part of the next round. */
  add(question: ClientQuestion): void {
    if (this.#open.size >= MAX_OPEN) {
      question.answer(errorAnswer(-32603, 'The client has too many unanswered questions'));
      return;
    }
    const key = this.#keyFor(question);
    this.#asked.add(key);
    const given = this.#given?.raw(key);
    const result = given === undefined ? undefined : downgradeInputResponse(question.method, LATEST_LEGACY, given);
    if (result !== undefined) {
      question.answer({ kind: 'result', result });
      return;
    }
    this.#register(key, question);
  }

  #register(key: string, question: ClientQuestion): void {
    this.#open.set(key, question);
    question.onWithdrawn(() => this.#open.delete(key));
    this.#isNew = true;
    setTimeout(() => this.#announce(), COALESCE_MS);
  }

  /** The call goes on as a task: what is asked is asked there, under the same keys, and here nothing more. */
  transfer(): InputRounds {
    const there = new InputRounds(this.#given);
    for (const key of this.#asked) there.#asked.add(key);
    for (const [key, question] of this.#open) there.#register(key, question);
    this.#open.clear();
    return there;
  }

  /**
   * The same question has the same name whenever the call is made, so that a client which makes it again can bring the answer.
   */
  #keyFor({ method, params }: ClientQuestion): string {
    const name = nameOf(method, params);
    let key = name;
    for (let n = 2; this.#asked.has(key); n++) key = `${name}_${n}`;
    return key;
  }

  #announce(): void {
    if (this.#isNew && this.#open.size > 0) this.#waiter?.resolve('asked');
  }

  /** Resolves when there is something to ask. What was taken back meanwhile is nothing. One waits at a time. */
  nextQuestions(): Promise<'asked'> {
    this.#waiter = Promise.withResolvers();
    this.#announce();
    return this.#waiter.promise;
  }

  /** The questions that are open now. */
  openQuestions(): readonly InputRequest[] {
    this.#isNew = false;
    return [...this.#open].map(([key, { method, params }]) => ({ key, method, params: upgradeServerRequest(params) }));
  }

  /** The key and method of the first open question whose response is no answer to it; undefined when there is none. */
  invalidResponse(responses: RawObject | undefined): { readonly key: string; readonly method: string } | undefined {
    for (const [key, { method }] of this.#open) {
      const raw = responses?.raw(key);
      if (raw !== undefined && !isAnswerTo(method, raw)) return { key, method };
    }
    return undefined;
  }

  /** Gives the responses to the upstream, by key. A question without a response is asked again. */
  answer(responses: RawObject | undefined): void {
    for (const [key, question] of this.#open) {
      const raw = responses?.raw(key);
      if (raw === undefined) continue;
      this.#open.delete(key);
      const result = downgradeInputResponse(question.method, LATEST_LEGACY, raw);
      // The caller has asked for `invalidResponse` first, so this is for questions that came since.
      question.answer(
        result === undefined ? errorAnswer(-32602, 'The client gave no valid answer') : { kind: 'result', result },
      );
    }
    this.#isNew = this.#open.size > 0;
  }

  /** Lets upstreams that want to know hear that somebody is at work. */
  progress(params: RawObject): void {
    for (const question of this.#open.values()) question.onProgress?.(params);
  }

  /** Nobody will answer any more. */
  cancelAll(why: string): void {
    for (const [key, question] of this.#open) {
      this.#open.delete(key);
      question.answer(
        question.method === 'elicitation/create'
          ? { kind: 'result', result: '{"action":"cancel"}' }
          : errorAnswer(-32603, why),
      );
    }
  }
}

function isAnswerTo(method: string, response: string): boolean {
  try {
    return downgradeInputResponse(method, LATEST_LEGACY, response) !== undefined;
  } catch (thrown) {
    if (thrown instanceof JsonTextError) return false;
    throw thrown;
  }
}
