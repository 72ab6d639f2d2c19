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

/**
 * Translates an answer for the client, and adds a loss of the upstream's state that is not reported yet. Waits while that state is being recorded:
 * another process, or this one after a restart, could not report its loss.
 *
 * An error waits for new lists before, if its translation depends on them. A list that is not read yet may have the resource or prompt.
 */
export function toOutcome(
  { translator, listRefresher }: CallAnswersParts,
  exchange: OpenExchange,
  { upstream, era, hello }: Link,
  source: Source | undefined,
  answer: Answer,
): CallOutcome | Promise<CallOutcome> {
  const { client, holder, request } = exchange;
  const completed = orNoCompletion(request.method, hello, answer);
  const translate = () =>
    withStateLoss(holder, upstream, translator.toClient(exchange, { upstream, era, source }, completed));
  const finish = () => holder.stateRecords?.get(upstream)?.then(translate) ?? translate();
  const mayBeListed =
    answer.kind === 'error' && client.dialect.marksUnlistedItems && namesUnlistedItem(client.catalog, request);
  // The answer is that of the upstream, whether it can be listed or not.
  const refreshing = mayBeListed ? listRefresher.refreshFor(holder)?.catch(() => undefined) : undefined;
  return refreshing === undefined ? finish() : resultWithin(refreshing, LISTS_WAIT_MS).then(finish);
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
