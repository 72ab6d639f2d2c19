import { detach, KeptMap } from '../../json/kept-text.ts';
import { RawObject } from '../../json/json.ts';
import type { InputRequest } from '../../protocol/input-required.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';

/** The pause before a retry that the upstream wants without an answer. While a page is awaited it doubles, up to the longest. */
const PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5_000;

/**
 * The pages that the user has agreed to open during a call. A modern upstream asks for a page again until the user is done there, which the
 * answer of the client does not say. The user is asked once.
 */
export class OpenedPages {
  readonly #limitMs: number;
  /** The params of the questions that the client has accepted, by URL. */
  readonly #questions = new KeptMap<RawObject>();
  #pauses = 0;
  #dueMs = 0;

  /** @param limitMs the time for the user to be done at a page. */
  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** Adds the page of an answered question, if the client has accepted it. The wait for pages begins again at each answer. */
  onAnswer(question: RawObject, response: string): void {
    this.#pauses = 0;
    this.#dueMs = performance.now() + this.#limitMs;
    const url = urlOf(question);
    if (url === undefined || RawObject.parse(response).string('action') !== 'accept') return;
    this.#questions.set(detach(url), RawObject.parse(detach(question.toString())));
  }

  has({ params }: InputRequest): boolean {
    const url = urlOf(params);
    return url !== undefined && this.#questions.has(url);
  }

  /** Returns whether an upstream that asks this only waits for the user to be done. */
  areAwaited(inputRequests: readonly InputRequest[]): boolean {
    return this.#questions.size > 0 && inputRequests.every((request) => this.has(request));
  }

  get areOverdue(): boolean {
    return performance.now() >= this.#dueMs;
  }

  /** Returns the pause before the next retry. It grows while pages are awaited. */
  nextPauseMs(): number {
    if (this.#questions.size === 0) return PAUSE_MS;
    return Math.min(LONGEST_PAUSE_MS, PAUSE_MS * 2 ** this.#pauses++, Math.max(0, this.#dueMs - performance.now()));
  }

  /** Returns the error of 2025-11-25 for a call that can be made when the user is done. */
  toError(upstream: string): Answer {
    const message = `upstream "${upstream}" still waits for the page that was opened; call again when you are done there`;
    const elicitations = [...this.#questions.values()].map((question): unknown => JSON.parse(question.toString()));
    return { kind: 'error', error: { code: RPC.urlElicitationRequired, message, data: { elicitations } } };
  }
}

function urlOf(params: RawObject | undefined): string | undefined {
  return params?.string('mode') === 'url' ? params.string('url') : undefined;
}
