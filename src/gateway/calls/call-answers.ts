import type { Source } from '../../catalog/names/named-items.ts';
import { resultWithin } from '../../deadline.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { withStateLoss } from '../connections/state-losses.ts';
import type { Link } from '../exchange/connection-holder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { namesUnlistedItem } from '../exchange/route.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { CallOutcome } from './call-outcome.ts';

export interface CallAnswersParts {
  readonly translator: ResultTranslator;
  readonly listRefresher: ListRefresher;
}

/** The longest time that the error of a read waits for lists. */
const LISTS_WAIT_MS = 2_000;

/** Makes outcomes of calls from the answers of upstreams. */
export class CallAnswers {
  readonly #parts: CallAnswersParts;

  constructor(parts: CallAnswersParts) {
    this.#parts = parts;
  }

  /**
   * Translates an answer for the client, and adds a loss of the upstream's state that is not reported yet. Waits while that state is being recorded:
   * another process, or this one after a restart, could not report its loss.
   */
  toOutcome(
    exchange: OpenExchange,
    { upstream, era, hello }: Link,
    source: Source | undefined,
    answer: Answer,
  ): CallOutcome | Promise<CallOutcome> {
    const { holder, request } = exchange;
    const completed = orNoCompletion(request.method, hello, answer);
    const translate = () => {
      const outcome = this.#parts.translator.toClient(exchange, { upstream, era, source }, completed);
      return withStateLoss(holder, upstream, outcome);
    };
    return holder.stateRecords?.get(upstream)?.then(translate) ?? translate();
  }

  /**
   * Waits for new lists before an error is translated, if the translation depends on them. A list that is not read yet may have the
   * resource or prompt.
   */
  async awaitLists({ client, holder, request }: OpenExchange): Promise<void> {
    if (!client.dialect.marksUnlistedItems || !namesUnlistedItem(client.catalog, request)) return;
    const refreshing = this.#parts.listRefresher.refreshFor(holder);
    // The answer is that of the upstream, whether it can be listed or not.
    if (refreshing !== undefined)
      await resultWithin(
        refreshing.catch(() => undefined),
        LISTS_WAIT_MS,
      );
  }
}

const NO_COMPLETION: Answer = { kind: 'result', result: '{"completion":{"values":[]}}' };

/**
 * Returns the empty completion if an upstream does not declare completions and has no such method. The gateway declares them for all of its
 * upstreams. Some answer without having declared it.
 */
function orNoCompletion(method: string, { capabilities }: Link['hello'], answer: Answer): Answer {
  if (answer.kind === 'result' || method !== 'completion/complete') return answer;
  const isUndeclared = capabilities.raw('completions') === undefined;
  return isUndeclared && answer.error.code === RPC.methodNotFound ? NO_COMPLETION : answer;
}
