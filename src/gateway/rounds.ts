import type { InputRequest } from '../protocol/input-required.ts';
import type { RawObject } from '../protocol/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { lowerAskAnswer } from '../protocol/ask-answer.ts';
import { raiseAsk } from '../protocol/raise.ts';
import { LATEST_LEGACY } from '../protocol/revisions.ts';
import type { Inquiry } from './exchange.ts';

/** Questions this close together are asked at once. */
const COALESCE_MS = 20;
const MAX_OPEN = 64;

function refusal(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/** What a legacy upstream wants to know while it works on one call, gathered into rounds that a modern client can answer. */
export class Rounds {
  readonly #open = new Map<string, Inquiry>();
  #last = 0;
  #asked = Promise.withResolvers<'asked'>();

  /** Takes a question; it is part of the next round. */
  put(inquiry: Inquiry): void {
    if (this.#open.size >= MAX_OPEN) {
      inquiry.answer(refusal(-32603, 'The client has too many unanswered questions'));
      return;
    }
    const key = `q${++this.#last}`;
    this.#open.set(key, inquiry);
    inquiry.onWithdrawn(() => this.#open.delete(key));
    setTimeout(() => this.#announce(), COALESCE_MS);
  }

  #announce(): void {
    if (this.#open.size > 0) this.#asked.resolve('asked');
  }

  /** Resolves when there is something to ask. */
  asked(): Promise<'asked'> {
    return this.#asked.promise;
  }

  /** The questions that are open now. The next {@link asked} waits for another one. */
  take(): readonly InputRequest[] {
    this.#asked = Promise.withResolvers();
    return [...this.#open].map(([key, { method, params }]) => ({ key, method, params: raiseAsk(params) }));
  }

  /** Hands the answers over, by key. True when questions are left that nothing was said about. */
  answer(responses: RawObject | undefined): boolean {
    for (const [key, inquiry] of this.#open) {
      const raw = responses?.raw(key);
      if (raw === undefined) continue;
      this.#open.delete(key);
      const result = lowerAskAnswer(inquiry.method, LATEST_LEGACY, raw);
      inquiry.answer(
        result === undefined ? refusal(-32602, 'The client gave no valid answer') : { kind: 'result', result },
      );
    }
    this.#announce();
    return this.#open.size > 0;
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
