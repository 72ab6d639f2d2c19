import { removeOver, setLatest } from '../../map-entries.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { personOf, type Principal } from '../../policy/principal.ts';

const WINDOW_MS = 3_600_000;
/** Questions of tasks that were decided, of one upstream and person. A forgotten one is decided again. */
const MAX_QUESTIONS = 1_000;

/** What an upstream has asked of a person since the beginning of the window. */
interface Asked {
  readonly endsAtMs: number;
  tokens: number;
  /** The open questions of tasks, by their names. */
  readonly questions: Map<string, Decided>;
}

/** A question that may be seen several times, and is decided once. Others of the same name are decided anew. */
interface NamedQuestion {
  readonly name: string;
  readonly content: string;
}

interface Decided {
  readonly content: string;
  readonly isAllowed: boolean;
}

/** The answer to a question that exceeds the budget. */
export interface BudgetRefusal {
  /** The tokens that are left. */
  readonly left: number;
  /** False if the same question was refused before. */
  readonly isNew: boolean;
}

/** Counts the tokens that upstreams ask the models of people for, in windows of an hour that begin with a question. */
export class SamplingBudget {
  readonly #asked = new Map<string, Asked>();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Counts the tokens of a question, if they do not exceed what is left of the budget. Returns the refusal otherwise. */
  take(
    upstream: string,
    principal: Principal,
    tokens: number,
    budget: number,
    question?: NamedQuestion,
  ): BudgetRefusal | undefined {
    const key = keyOf(upstream, principal);
    const nowMs = performance.now();
    let asked = this.#asked.get(key);
    if (asked === undefined || nowMs >= asked.endsAtMs) {
      asked = { endsAtMs: nowMs + WINDOW_MS, tokens: 0, questions: new Map() };
    }
    const decided = question === undefined ? undefined : asked.questions.get(question.name);
    const known = decided?.content === question?.content ? decided : undefined;
    if (known?.isAllowed === true) return undefined;
    const left = budget - asked.tokens;
    const isAllowed = tokens <= left;
    if (isAllowed) asked.tokens += tokens;
    if (question !== undefined) {
      setLatest(asked.questions, question.name, { content: question.content, isAllowed }, MAX_QUESTIONS);
    }
    removeOver(this.#asked, ({ endsAtMs }) => nowMs >= endsAtMs);
    if (setLatest(this.#asked, key, asked, LIMITS.samplingBudgets)) this.#onLimit('samplingBudgets');
    return isAllowed ? undefined : { left: Math.max(0, left), isNew: known === undefined };
  }

  /**
   * Removes questions that are being answered: each counts again when it is asked again. Returns the function that puts those back that were not asked
   * since, because their answers have not arrived.
   */
  forget(upstream: string, principal: Principal, names: readonly string[]): () => void {
    const { questions } = this.#asked.get(keyOf(upstream, principal)) ?? {};
    const forgotten = new Map(names.map((name) => [name, questions?.get(name)]));
    for (const name of names) questions?.delete(name);
    return () => {
      for (const [name, decided] of forgotten) {
        if (decided !== undefined && questions?.has(name) === false) setLatest(questions, name, decided, MAX_QUESTIONS);
      }
    };
  }
}

function keyOf(upstream: string, principal: Principal): string {
  return JSON.stringify([upstream, personOf(principal)]);
}
