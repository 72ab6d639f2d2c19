import { sourceByName } from '../../catalog/catalog.ts';
import { quoted } from '../../json/json.ts';
import { readRetry } from '../../protocol/input-required.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { ModernClient } from '../clients/modern-client.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import { unsealState } from '../handles/request-state.ts';
import type { Sealer } from '../handles/sealer.ts';

/**
 * Returns the route of the parked call that a request continues; undefined if it continues none. A reload may have removed the upstream, or given the
 * tool another name.
 *
 * @throws {GatewayError} `invalid-state`
 */
export async function formerRoute(
  sealer: Sealer,
  request: Request,
  { caller, catalog }: ModernClient,
): Promise<UpstreamRoute | undefined> {
  const { method, params } = request;
  if (method !== 'tools/call' || params === undefined) return undefined;
  const requestState = readRetry(params)?.requestState;
  if (requestState === undefined) return undefined;
  const state = await unsealState(sealer, requestState, caller, request);
  if (state.kind !== 'park' || state.upstream === undefined || state.tool === undefined) return undefined;
  const { upstream, tool } = state;
  return {
    kind: 'upstream',
    upstream,
    params: params.with('name', quoted(tool)),
    tool: params.string('name'),
    upstreamTool: tool,
    source: sourceByName(catalog, upstream, tool),
  };
}
