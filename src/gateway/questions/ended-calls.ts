import { detach } from '../../json/kept-text.ts';
import { KeyedSums } from '../../map-entries.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { ReadAnswer } from '../exchange/answer-text.ts';

/** The time that the answer of a call is kept, for a client whose connection broke just then. */
export const RETAIN_MS = 60_000;

/** Memory of an answer besides its text. */
const ENTRY_BYTES = 512;
/** A character of a text takes up to two bytes. */
const CHAR_BYTES = 2;

interface EndedCall {
  readonly principal: string;
  readonly end: ReadAnswer;
  readonly bytes: number;
  /** Monotonic ms. */
  readonly untilMs: number;
}

/** The answers of parked calls that have ended, for repeated retries, in the order of their ends. They are bounded in bytes. */
export class EndedCalls {
  readonly #calls = new Map<string, EndedCall>();
  readonly #bytes = new KeyedSums();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** Adds the answer of a call, and removes the oldest ones that it leaves no room for. */
  add(id: string, principal: string, { answer, isUpstreams }: ReadAnswer, nowMs: number): void {
    const kept: Answer = answer.kind === 'result' ? { kind: 'result', result: detach(answer.result) } : answer;
    const text = kept.kind === 'result' ? kept.result : JSON.stringify(kept.error);
    const bytes = ENTRY_BYTES + CHAR_BYTES * text.length;
    this.#calls.set(id, { principal, end: { answer: kept, isUpstreams }, bytes, untilMs: nowMs + RETAIN_MS });
    this.#bytes.add(principal, bytes);
    const isOwn = (call: EndedCall) => call.principal === principal;
    while (this.#bytes.of(principal) > LIMITS.endedCallBytesPerPrincipal) {
      this.#cut('endedCallBytesPerPrincipal', isOwn);
    }
    while (this.#bytes.total > LIMITS.endedCallBytes) this.#cut('endedCallBytes', () => true);
  }

  /** Returns the answer of a call; undefined if it is not kept. */
  find(id: string, nowMs: number): ReadAnswer | undefined {
    const call = this.#calls.get(id);
    return call !== undefined && nowMs < call.untilMs ? call.end : undefined;
  }

  removeExpired(nowMs: number): void {
    for (const [id, call] of this.#calls) {
      if (nowMs < call.untilMs) return;
      this.#remove(id, call);
    }
  }

  /** Removes the oldest one of those. */
  #cut(limit: LimitName, isConcerned: (call: EndedCall) => boolean): void {
    this.#onLimit(limit);
    for (const [id, call] of this.#calls) {
      if (!isConcerned(call)) continue;
      this.#remove(id, call);
      return;
    }
  }

  #remove(id: string, { principal, bytes }: EndedCall): void {
    this.#calls.delete(id);
    this.#bytes.add(principal, -bytes);
  }
}
