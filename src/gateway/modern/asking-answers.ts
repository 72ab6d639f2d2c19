import type { SharedParts } from '../records/shared-parts.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { LIMITS } from '../../limits.ts';
import { type InputRequest, inputRequiredResult } from '../../protocol/input-required.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { CallOutcome } from '../calls/call-outcome.ts';
import type { ModernClient } from '../clients/modern-client.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { type ResultTranslator, toolFailure } from '../forward/result-translator.ts';
import { type RequestState, sealState } from '../handles/request-state.ts';
import type { Sealer } from '../handles/sealer.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import type { UrlElicitations } from '../questions/url-elicitations.ts';

export interface AskingAnswersParts extends Pick<SharedParts, 'owners' | 'onLimit'> {
  readonly sealer: Sealer;
  readonly questionPolicy: QuestionPolicy;
  readonly urlElicitations: UrlElicitations;
  readonly translator: ResultTranslator;
}

/** The lifetime of a `requestState` that no parked call belongs to. A user may need that long to answer. */
const STATE_MS = 3_600_000;

/** Makes the answers that ask a modern client something, and waits at its retry for the pages that they name. */
export class AskingAnswers {
  readonly #parts: AskingAnswersParts;

  constructor(parts: AskingAnswersParts) {
    this.#parts = parts;
  }

  /** Returns the answer to the client: the upstream's, or the questions that the client answers in a retry. */
  toAnswer(exchange: OpenExchange, outcome: CallOutcome): Answer | Promise<Answer> {
    const { upstream = '' } = exchange;
    switch (outcome.kind) {
      case 'result':
      case 'error':
        return outcome;
      case 'input-required': {
        const { inputRequests, requestState, rest } = outcome.inputRequired;
        const state = { kind: 'relay', upstream, inner: requestState } as const;
        return this.#inputRequired(exchange, upstream, inputRequests, state, rest);
      }
      case 'urls-required': {
        const ids = outcome.elicitations.map(({ elicitationId }) => elicitationId);
        const requests = outcome.elicitations.map(({ url, message }, i) => ({
          key: `url${i + 1}`,
          method: 'elicitation/create',
          params: RawObject.of({ mode: 'url', message, url }),
        }));
        return this.#inputRequired(exchange, upstream, requests, {
          kind: 'pages',
          upstream,
          ids,
          owner: this.#parts.owners.name,
        });
      }
    }
  }

  /** Returns the answer with questions, the sealed state for the retry, and the rest of the upstream's result. */
  async #inputRequired(
    exchange: OpenExchange,
    upstream: string,
    requests: readonly InputRequest[],
    state: RequestState,
    rest = RawObject.EMPTY,
  ): Promise<Answer> {
    const { client, request, view } = exchange;
    const { sealer, questionPolicy, translator } = this.#parts;
    questionPolicy.assertAskable(client, upstream, requests, state.kind === 'pages');
    const sealed = await sealState(sealer, state, client.caller, request, Date.now() + STATE_MS);
    if (sealed.length > LIMITS.handleChars) {
      this.#parts.onLimit('handleChars');
      const message = `upstream "${upstream}" asks with a state that is too long`;
      throw new GatewayError('upstream-protocol', { upstream, message });
    }
    const inputRequests = requests.map((one) => ({
      ...one,
      // `params` is optional for roots/list, but the Go SDK cannot read the request without it.
      params: questionPolicy.toClient(client, upstream, one, view),
    }));
    questionPolicy.assertTokens(client, upstream, inputRequests);
    const published = translator.publish(exchange, upstream, rest);
    const asked = { inputRequests, requestState: JSON.stringify(sealed), rest: published };
    const result = translator.stamp(inputRequiredResult(asked));
    return { kind: 'result', result: result.toString() };
  }

  /**
   * Waits at most `waitMs` until the upstream has reported the visits that the user completed. If the client says nothing about the URLs,
   * the upstream is asked again without waiting.
   *
   * @returns a tool failure if the user did not open a URL; undefined if the call can be sent.
   * @throws {GatewayError} `client-unreachable` in that case, for other methods.
   */
  async awaitVisits(
    client: ModernClient,
    method: string,
    { upstream, ids }: { readonly upstream: string; readonly ids: readonly string[] },
    responses: RawObject | undefined,
    waitMs: number,
  ): Promise<Answer | undefined> {
    const actions = ids.map((_, i) => responses?.object(`url${i + 1}`)?.string('action'));
    if (actions.some((action) => action !== undefined && action !== 'accept')) {
      const message = 'the page that has to be opened first was not opened';
      if (method !== 'tools/call') throw new GatewayError('client-unreachable', { upstream, executed: 'no', message });
      const { result } = toolFailure(message);
      return { kind: 'result', result: this.#parts.translator.stampOwn(client.dialect, method, result) };
    }
    if (actions.every((action) => action === 'accept')) {
      await this.#parts.urlElicitations.wait(upstream, client.caller.principal.key, ids, waitMs);
    }
    return undefined;
  }
}
