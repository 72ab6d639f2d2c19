import type { Catalog } from '../../catalog/catalog.ts';
import { isHiddenAt } from '../../catalog/resources/resources.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import { type Gate, insufficientScope } from '../exchange/gate.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { route, unknownItem, type UpstreamRoute } from '../exchange/route.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';

export interface CallJudgeParts {
  readonly gate: Pick<Gate, 'judge' | 'report' | 'changedMs'>;
  /** Returns whether the definitions of an upstream are compared with the lock. */
  readonly isPinned: (upstream: string) => boolean;
  readonly listRefresher: ListRefresher;
}

/**
 * Judges a call that has waited, or whose access policy has changed, by the policy and the lists of now. A reload may deny it. A list
 * that was read meanwhile may differ from the lock. Lists of the process that gets the call may differ from it too, while the client has
 * those of another process.
 *
 * @param hasWaited whether the call has just waited.
 * @throws {GatewayError} `insufficient-scope`, `unknown-tool`, `unknown-prompt`, `unknown-resource`, `invalid-params`
 */
export function assertAllowed(
  { gate, isPinned, listRefresher }: CallJudgeParts,
  { client, holder, request, judgedMs }: OpenExchange,
  to: UpstreamRoute,
  hasWaited: boolean,
): void {
  if (hasWaited || gate.changedMs >= judgedMs) {
    const verdict = gate.judge(client.caller, request, to);
    if (verdict?.effect === 'deny') {
      gate.report(verdict);
      throw insufficientScope(verdict) ?? unknownItem(request).error;
    }
    if (isPinned(to.upstream)) {
      listRefresher.bringUpToDate(holder);
      assertListed(client.catalog, request);
    }
  }
  if (holder.catalog === client.catalog || !isPinned(to.upstream)) return;
  listRefresher.bringUpToDate(holder);
  const { catalog } = holder;
  assertListed(catalog.whole ?? catalog, request, to);
}

/**
 * @param to where the request goes, if the catalog has more than its client may use.
 * @throws {GatewayError} if a catalog does not lead to the item of a request.
 */
function assertListed(catalog: Catalog, request: Request, to?: UpstreamRoute): void {
  const again = route(catalog, request);
  if (again.kind === 'upstream') return;
  const uri = again.error.code === 'ambiguous-resource' ? to?.params.string('uri') : undefined;
  // The access policy has left the client one of several upstreams.
  if (to === undefined || uri === undefined) throw again.error;
  if (isHiddenAt(catalog.resources, to.upstream, uri)) throw unknownItem(request).error;
}
