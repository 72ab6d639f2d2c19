import type { InputRequest } from '../protocol/input-required.ts';
import type { RawObject } from '../json/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { lowerAskAnswer } from '../protocol/ask-answer.ts';
import { raiseAsk } from '../protocol/raise.ts';
import { LATEST_LEGACY } from '../protocol/revisions.ts';
import type { Inquiry } from './exchange.ts';

/** Questions this close together are asked at once. */
const COALESCE_MS = 20;
const MAX_OPEN = 64;

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

function refusal(code: number, message: string): Answer {
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
export class Rounds {
  readonly #open = new Map<string, Inquiry>();
  readonly #asked = new Set<string>();
  readonly #given: RawObject | undefined;
  /** There are questions that the client has not been asked, or has left open. */
  #isNew = false;
  /** Of whoever waits for something to ask. */
  #asking: PromiseWithResolvers<'asked'> | undefined;

  /** @param given answers that came with the request itself, by the keys that questions get. */
  constructor(given?: RawObject) {
    this.#given = given;
  }

  /** Takes a question; it is part of the next round. */
  put(inquiry: Inquiry): void {
    if (this.#open.size >= MAX_OPEN) {
      inquiry.answer(refusal(-32603, 'The client has too many unanswered questions'));
      return;
    }
    const key = this.#keyFor(inquiry);
    this.#asked.add(key);
    const given = this.#given?.raw(key);
    const result = given === undefined ? undefined : lowerAskAnswer(inquiry.method, LATEST_LEGACY, given);
    if (result !== undefined) {
      inquiry.answer({ kind: 'result', result });
      return;
    }
    this.#hold(key, inquiry);
  }

  #hold(key: string, inquiry: Inquiry): void {
    this.#open.set(key, inquiry);
    inquiry.onWithdrawn(() => this.#open.delete(key));
    this.#isNew = true;
    setTimeout(() => this.#announce(), COALESCE_MS);
  }

  /** The call goes on as a task: what is asked is asked there, under the same keys, and here nothing more. */
  moved(): Rounds {
    const there = new Rounds(this.#given);
    for (const key of this.#asked) there.#asked.add(key);
    for (const [key, inquiry] of this.#open) there.#hold(key, inquiry);
    this.#open.clear();
    return there;
  }

  /**
   * The same question has the same name whenever the call is made, so that a client which makes it again can bring the answer.
   */
  #keyFor({ method, params }: Inquiry): string {
    const name = nameOf(method, params);
    let key = name;
    for (let n = 2; this.#asked.has(key); n++) key = `${name}_${n}`;
    return key;
  }

  #announce(): void {
    if (this.#isNew && this.#open.size > 0) this.#asking?.resolve('asked');
  }

  /** Resolves when there is something to ask. What was taken back meanwhile is nothing. One waits at a time. */
  asked(): Promise<'asked'> {
    this.#asking = Promise.withResolvers();
    this.#announce();
    return this.#asking.promise;
  }

  /** The questions that are open now. */
  take(): readonly InputRequest[] {
    this.#isNew = false;
    return [...this.#open].map(([key, { method, params }]) => ({ key, method, params: raiseAsk(params) }));
  }

  /** Hands the answers over, by key. What nothing was said about is asked again. */
  answer(responses: RawObject | undefined): void {
    for (const [key, inquiry] of this.#open) {
      const raw = responses?.raw(key);
      if (raw === undefined) continue;
      this.#open.delete(key);
      const result = lowerAskAnswer(inquiry.method, LATEST_LEGACY, raw);
      inquiry.answer(
        result === undefined ? refusal(-32602, 'The client gave no valid answer') : { kind: 'result', result },
      );
    }
    this.#isNew = this.#open.size > 0;
  }

  /** Lets upstreams that want to know hear that somebody is at work. */
  progress(params: RawObject): void {
    for (const inquiry of this.#open.values()) inquiry.progressed?.(params);
  }

  /** Nobody will answer any more. */
  abandon(why: string): void {
    for (const [key, inquiry] of this.#open) {
      this.#open.delete(key);
      inquiry.answer(
        inquiry.method === 'elicitation/create'
          ? { kind: 'result', result: '{"action":"cancel"}' }
          : refusal(-32603, why),
      );
    }
  }
}
