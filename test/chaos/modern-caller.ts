import { setTimeout as delay } from 'node:timers/promises';
import { modernHeaders, modernText } from '../support/modern-wire.ts';
import type { Caller, OpenAttempt } from './client.ts';
import { endOfAnswer, endOfResponse } from './ends.ts';
import { exchange, type Message, parseMessage, type Response } from './http-exchange.ts';

const BOTH = 'application/json, text/event-stream';
const CAPABILITIES = { elicitation: { form: {} } };
/** Retries of a call that waits for its client, while the connection breaks. */
const RETRIES = 5;
const PAUSE_MS = 300;

/** A client of 2026-07-28. */
export class ModernCaller implements Caller {
  readonly #url: string;
  readonly #key: string;
  readonly #seen: Set<string>;
  #lastId = 0;

  constructor(url: string, key: string, seen: Set<string>) {
    this.#url = url;
    this.#key = key;
    this.#seen = seen;
  }

  prepare(): Promise<boolean> {
    return Promise.resolve(true);
  }

  async send(open: OpenAttempt, signal: AbortSignal): Promise<void> {
    const { upstream, resetMs } = open.call;
    const params = { name: `${upstream}__act`, arguments: open.arguments };
    const first = await this.#exchange(open, params, resetMs, signal);
    if (first.kind === 'reset') {
      open.end({ kind: 'abandoned' });
      return;
    }
    const state = first.answer?.result?.['requestState'];
    if (first.answer?.result?.['resultType'] !== 'input_required' || typeof state !== 'string') {
      finish(open, first);
      return;
    }
    open.note('answers the question');
    const [question = ''] = Object.keys(Object(first.answer.result['inputRequests']));
    const inputResponses = { [question]: { action: 'accept', content: {} } };
    const retry = { ...params, requestState: state, inputResponses };
    // The gateway keeps the state of a call that it has parked, so that a retry may be repeated. A modern upstream has its own states.
    const most = upstream === 'modern' ? 1 : RETRIES;
    for (let n = 1; ; n++) {
      const times = n === 1 && open.call.retriesTwice ? 2 : 1;
      const [next, twin = next] = await Promise.all(
        Array.from({ length: times }, () => this.#exchange(open, retry, undefined, signal)),
      );
      if (next === undefined || twin === undefined) return;
      const isClosed = next.kind === 'received' && next.answer === undefined && !next.response.isWhole;
      const isRefused = next.kind === 'received' && isStoreUnavailable(next);
      if (!(isClosed || isRefused) || n >= most || signal.aborted) {
        finish(open, isResult(twin) && !isResult(next) ? twin : next);
        if (isResult(next) && isResult(twin) && resultText(next) !== resultText(twin)) {
          open.end({ kind: 'closed', why: `another answer to the same retry: ${resultText(twin)}` });
        }
        return;
      }
      open.note(`retries: ${next.response.status} ${next.response.failure}`);
      await delay(PAUSE_MS * n);
    }
  }

  async #exchange(
    open: OpenAttempt,
    params: Readonly<Record<string, unknown>>,
    resetMs: number | undefined,
    signal: AbortSignal,
  ): Promise<Outcome> {
    const id = ++this.#lastId;
    const options = { id, capabilities: CAPABILITIES, meta: { progressToken: `${open.call.id}.${id}` } };
    let answer: Message | undefined;
    let isReset = false;
    const onMessage = (message: Message | undefined) => {
      if (message === undefined) return;
      if (message.method === 'notifications/progress')
        open.onProgress(message.params?.['progress'], message.params?.['message']);
      if (message.method !== undefined || message.id !== id) return;
      if (answer !== undefined) open.end({ kind: 'closed', why: 'a second answer' });
      answer = message;
    };
    const headers = modernHeaders('tools/call', params, {
      headers: { 'content-type': 'application/json', accept: BOTH, authorization: `Bearer ${this.#key}` },
    });
    const given = Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined);
    const sent = exchange(this.#url, {
      method: 'POST',
      headers: Object.fromEntries(given),
      body: modernText('tools/call', params, options),
      seen: this.#seen,
      onEvent: onMessage,
    });
    const reset = () => {
      isReset = answer === undefined;
      sent.reset();
    };
    signal.addEventListener('abort', sent.reset);
    const timer = resetMs === undefined ? undefined : setTimeout(reset, resetMs);
    const response = await sent.done;
    clearTimeout(timer);
    signal.removeEventListener('abort', sent.reset);
    if (!response.isEvents && response.isWhole) onMessage(parseMessage(response.text));
    return isReset && answer === undefined ? { kind: 'reset' } : { kind: 'received', answer, response };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing outlives a request.
  }
}

type Outcome =
  | { readonly kind: 'reset' }
  | { readonly kind: 'received'; readonly answer: Message | undefined; readonly response: Response };

function isResult(outcome: Outcome): boolean {
  return outcome.kind === 'received' && outcome.answer?.result !== undefined;
}

function resultText(outcome: Outcome): string {
  return outcome.kind === 'received' ? JSON.stringify(outcome.answer?.result) : '';
}

function isStoreUnavailable({ answer }: Extract<Outcome, { kind: 'received' }>): boolean {
  return answer?.error?.code === -31_023;
}

function finish(open: OpenAttempt, outcome: Outcome): void {
  if (outcome.kind === 'reset') open.end({ kind: 'abandoned' });
  else if (outcome.answer !== undefined) open.end(endOfAnswer(outcome.answer));
  else open.end(endOfResponse(outcome.response));
}
