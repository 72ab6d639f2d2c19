import { resultOrLate, resultUnlessAborted } from '../deadline.ts';
import { EgressError } from '../egress/egress-error.ts';
import type { Egress } from '../egress/egress.ts';
import { FairSlots } from '../fair-slots.ts';
import { jsonOf, memberOf } from '../json/record.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import type { ExternalConfig } from '../policy/access-config.ts';
import type { ExternalAnswer } from '../policy/external-question.ts';
import { messageOf } from '../thrown.ts';

export interface DecisionPointDeps {
  /** Sends the questions. */
  readonly egress: Pick<Egress, 'fetch'>;
  /** Runs at the end of each question that nobody gave up. */
  readonly onAnswer: (answer: ExternalAnswer, ms: number) => void;
  readonly onLimit: (limit: LimitName) => void;
}

/** Questions that wait for their turn. A `subscriptions/listen` has up to 1 000. */
const WAITING = { waiting: 4_096, waitingPerOwner: 1_024 };

/** The codes of connections that ended without a response. */
const LOST: ReadonlySet<unknown> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

const ALLOWED: ExternalAnswer = { outcome: 'allowed', why: 'the external decision allows it' };
const DENIED: ExternalAnswer = { outcome: 'denied', why: 'the external decision denies it' };

/** The time for which connections are kept without a question. */
const IDLE_MS = 60_000;

/** The least wait for a connection, so that a next question may use one that comes too late for the first. */
const CONNECT_MS = 1_000;

/** Questions that were sent and have not ended. Those that were given up while their connection hangs end with it, and would pile up. */
const UNENDED = 2 * LIMITS.externalQuestions;

class LateError extends Error {}

const givenUp = () => new Error('the question was given up');

/** Asks a decision point (AuthZEN). Keeps no decision. docs/decisions/0092-an-external-decision.md */
export class DecisionPoint {
  readonly #deps: DecisionPointDeps;
  readonly #slots = new FairSlots({
    slots: LIMITS.externalQuestions,
    slotsPerOwner: LIMITS.externalQuestions,
    ...WAITING,
  });
  #unended = 0;

  constructor(deps: DecisionPointDeps) {
    this.#deps = deps;
  }

  /**
   * Asks a question, after a wait if many are asked already. Resolves within the timeout. Never rejects.
   *
   * @param owner the person, who takes turns with others.
   * @param signal ends the question, whose answer then does not count. The caller aborts it at the end, so that a question that is late keeps no turn.
   * @param isReported false for an explanation, which is neither counted nor logged.
   */
  async ask(
    config: ExternalConfig,
    owner: string,
    question: string,
    signal: AbortSignal,
    isReported = true,
  ): Promise<ExternalAnswer> {
    const { onAnswer, onLimit } = this.#deps;
    const startedMs = performance.now();
    const answer = await this.#answer(config, owner, question, signal, isReported ? onLimit : () => undefined);
    if (isReported && !signal.aborted) onAnswer(answer, performance.now() - startedMs);
    return answer;
  }

  async #answer(
    config: ExternalConfig,
    owner: string,
    question: string,
    signal: AbortSignal,
    onLimit: DecisionPointDeps['onLimit'],
  ): Promise<ExternalAnswer> {
    const { timeoutMs } = config;
    const refuse = (outcome: ExternalAnswer['outcome'], limit: LimitName, why: string): ExternalAnswer => {
      onLimit(limit);
      return { outcome, why };
    };
    const isTooLarge = Buffer.byteLength(question) > LIMITS.externalQuestionBytes;
    if (isTooLarge) return refuse('too-large', 'externalQuestionBytes', 'the question is too large');
    try {
      signal.throwIfAborted();
      const send = () => resultUnlessAborted(this.#send(config, question, signal), signal, givenUp);
      const asking = this.#slots.run(owner, send, signal);
      const isAllowed = await resultOrLate(asking, timeoutMs, () => new LateError(`no answer within ${timeoutMs} ms`));
      if (isAllowed === undefined) return refuse('overloaded', 'externalQuestions', 'too many questions wait');
      return isAllowed ? ALLOWED : DENIED;
    } catch (thrown) {
      return { outcome: thrown instanceof LateError ? 'late' : 'failed', why: messageOf(thrown) };
    }
  }

  async #send(config: ExternalConfig, question: string, signal: AbortSignal): Promise<boolean> {
    if (this.#unended >= UNENDED) throw new EgressError('no further connection is opened, as many hang');
    this.#unended++;
    try {
      return await this.#post(config, question, signal);
    } finally {
      this.#unended--;
    }
  }

  async #post({ url, headers, timeoutMs }: ExternalConfig, question: string, signal: AbortSignal): Promise<boolean> {
    const sent = { ...headers, 'content-type': 'application/json' };
    const connectMs = Math.max(timeoutMs, CONNECT_MS);
    const pool = { connectMs, idleMs: IDLE_MS, maxSockets: LIMITS.externalQuestions };
    const request = { method: 'POST', headers: sent, body: question, keepsConnection: true, pool, signal } as const;
    const send = () => {
      signal.throwIfAborted();
      return this.#deps.egress.fetch(url, 'configured', request);
    };
    // The other end may have closed a kept connection a moment before. A question may be asked twice.
    const response = await send().catch((thrown: unknown) =>
      LOST.has(memberOf(thrown, 'code')) ? send() : Promise.reject(thrown),
    );
    if (response.status !== 200) throw new EgressError(`it answered with HTTP ${response.status}`);
    const decision = memberOf(jsonOf(await response.text()), 'decision');
    if (typeof decision !== 'boolean') throw new EgressError('it answered without a decision of true or false');
    return decision;
  }
}
