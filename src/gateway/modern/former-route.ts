import { sourceByName } from '../../catalog/catalog.ts';
import { GatewayError } from '../../errors.ts';
import { quoted } from '../../json/json.ts';
import { mayRequireInput, readRetry } from '../../protocol/input-required.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { ModernClient } from '../clients/modern-client.ts';
import { toUpstream, type UpstreamRoute } from '../exchange/route.ts';
import { unsealState } from '../handles/request-state.ts';
import type { Sealer } from '../handles/sealer.ts';

/**
 * Returns the route of the parked call that a request continues; undefined if it continues none. A reload may have removed the upstream, or given the
 * item another name. A state that is not valid continues none: its error would tell an unknown name from a hidden one.
 */
export async function formerRoute(
  sealer: Sealer,
  request: Request,
  { caller, catalog }: ModernClient,
): Promise<UpstreamRoute | undefined> {
  const { method, params } = request;
  if (params === undefined || !mayRequireInput(method)) return undefined;
  const requestState = readRetry(params)?.requestState;
  if (requestState === undefined) return undefined;
  const state = await unsealState(sealer, requestState, caller, request).catch(unlessInvalid);
  if (state?.kind !== 'park' || state.upstream === undefined) return undefined;
  const { upstream, tool, item } = state;
  if (tool !== undefined) {
    const source = sourceByName(catalog, upstream, tool);
    const named = toUpstream(upstream, params.with('name', quoted(tool)));
    return { ...named, tool: params.string('name'), upstreamTool: tool, source };
  }
  if (item === undefined) return undefined;
  return toUpstream(upstream, params.with(method === 'prompts/get' ? 'name' : 'uri', quoted(item)));
}

function unlessInvalid(thrown: unknown): undefined {
  if (!(thrown instanceof GatewayError) || thrown.code !== 'invalid-state') throw thrown;
}
