import { setLatest } from '../../bounded-map.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { personOf, type Principal } from '../../policy/principal.ts';

const WINDOW_MS = 3_600_000;
/** Questions of tasks whose tokens were counted, of one upstream and person. A forgotten one is counted again. */
const MAX_QUESTIONS = 1_000;

/** What an upstream has asked of a person since the beginning of the window. */
interface Asked {
  readonly endsAtMs: number;
  tokens: number;
  readonly questions: Map<string, true>;
}

/** Counts the tokens that upstreams ask the models of people for, in windows of an hour that begin with a question. */
export class SamplingBudget {
  readonly #asked = new Map<string, Asked>();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /**
   * Counts the tokens of a question. Returns false, and counts nothing, if they exceed what is left of the budget.
   *
   * @param question names one that may be seen several times, and counts once.
   */
  take(upstream: string, principal: Principal, tokens: number, budget: number, question?: string): boolean {
    const key = JSON.stringify([upstream, personOf(principal)]);
    const nowMs = performance.now();
    let asked = this.#asked.get(key);
    if (asked === undefined || nowMs >= asked.endsAtMs) {
      asked = { endsAtMs: nowMs + WINDOW_MS, tokens: 0, questions: new Map() };
    }
    if (question !== undefined && asked.questions.has(question)) return true;
    if (asked.tokens + tokens > budget) return false;
    asked.tokens += tokens;
    if (question !== undefined) setLatest(asked.questions, question, true, MAX_QUESTIONS);
    if (setLatest(this.#asked, key, asked, LIMITS.samplingBudgets)) this.#onLimit('samplingBudgets');
    return true;
  }
}
