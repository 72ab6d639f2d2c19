import type { Catalog } from '../../catalog/catalog.ts';
import { isHiddenAt } from '../../catalog/resources/resources.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import { type Gate, insufficientScope } from '../exchange/gate.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { route, type Route, unknownItem, type UpstreamRoute } from '../exchange/route.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';

export interface CallJudgeParts {
  readonly gate: Pick<Gate, 'judge' | 'report' | 'changedMs'>;
  /** Returns whether the definitions of an upstream are compared with the lock. */
  readonly isPinned: (upstream: string) => boolean;
  readonly listRefresher: ListRefresher;
}

/**
 * Judges a call right before it is sent, by the policy and the lists of now. A reload may deny it. The lock may withhold its item since the call was
 * routed. Lists of the process that gets the call may differ from the lock too, while the client has those of another process.
 *
 * @param hasWaited whether the call has just waited.
 * @throws {GatewayError} `insufficient-scope`, `unknown-tool`, `unknown-prompt`, `unknown-resource`, `invalid-params`
 */
export function assertAllowed(
  { gate, isPinned, listRefresher }: CallJudgeParts,
  exchange: OpenExchange,
  to: UpstreamRoute,
  hasWaited: boolean,
): void {
  const { client, holder, request } = exchange;
  assertPermitted(gate, exchange, to, hasWaited);
  if (!isPinned(to.upstream)) return;
  listRefresher.bringUpToDate(holder);
  assertListed(client.catalog, request);
  const { catalog } = holder;
  if (catalog !== client.catalog) assertListedAt(catalog.whole ?? catalog, request, to);
}

/**
 * Judges a request that has waited, or whose access policy has changed, by the policy of now.
 *
 * @throws {GatewayError} `insufficient-scope`, or the answer to an unknown name.
 */
export function assertPermitted(
  gate: CallJudgeParts['gate'],
  { client, request, judgedMs }: Pick<OpenExchange, 'client' | 'request' | 'judgedMs'>,
  to: UpstreamRoute,
  hasWaited: boolean,
): void {
  if (!hasWaited && gate.changedMs < judgedMs) return;
  const verdict = gate.judge(client.caller, request, to);
  if (verdict?.effect !== 'deny') return;
  gate.report(verdict);
  throw insufficientScope(verdict) ?? unknownItem(request).error;
}

/** @throws {GatewayError} if a catalog does not lead to the item of a request. */
function assertListed(catalog: Catalog, request: Request): void {
  const again = route(catalog, request);
  if (again.kind === 'nowhere') throw again.error;
}

/**
 * @param catalog may have items of other upstreams that the policy hides from the client, also with the same name or URI.
 * @throws {GatewayError} if a catalog withholds the item to which a request goes.
 */
function assertListedAt(catalog: Catalog, request: Request, to: UpstreamRoute): void {
  const uri = uriOf(request.method, to);
  const isListed =
    uri === undefined
      ? isRouteTo(to.upstream, route(catalog, request))
      : !isHiddenAt(catalog.resources, to.upstream, uri);
  if (!isListed) throw unknownItem(request).error;
}

/** Returns the URI or URI template, as its upstream knows it, that a request is about. */
function uriOf(method: string, { params }: UpstreamRoute): string | undefined {
  if (method === 'resources/read') return params.string('uri');
  const ref = method === 'completion/complete' ? params.object('ref') : undefined;
  return ref?.string('type') === 'ref/resource' ? ref.string('uri') : undefined;
}

function isRouteTo(upstream: string, found: Route): boolean {
  return found.kind === 'upstream' && found.upstream === upstream;
}
