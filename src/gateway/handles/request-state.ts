import { createHash } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { orderedText } from '../../json/ordered.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { Caller } from '../front/caller.ts';
import type { Sealer } from './sealer.ts';

/** The content of a `requestState` that the gateway has sealed. */
export type RequestState =
  /**
   * A parked call of the process `owner`, and the input round that the client answers. Also its upstream, with its own name for a called
   * tool (`tool`) or another item (`item`). States of an older version have none of the three. A very long URI is left out.
   */
  | {
      readonly kind: 'park';
      readonly owner: string;
      readonly park: string;
      readonly round: number;
      readonly upstream?: string;
      readonly tool?: string | undefined;
      readonly item?: string | undefined;
    }
  /** The `requestState` of a modern upstream, as raw JSON text in `inner`. */
  | { readonly kind: 'relay'; readonly upstream: string; readonly inner: string | undefined }
  /** The URL elicitations that the user was sent to, by the upstream's ids, and the process that hears of visits. */
  | { readonly kind: 'pages'; readonly upstream: string; readonly ids: readonly string[]; readonly owner: string };

/** Returns a digest of the caller and the request that a state is valid for. No other caller or request can use it. */
function claimOf({ principal, view }: Caller, { method, params }: Request): string {
  const bare = (params ?? RawObject.EMPTY).with('inputResponses', undefined).with('requestState', undefined);
  const salient = bare.with('_meta', undefined).toString();
  // A client may write equal parameters in another order. Numbers are compared as texts: others would be equal as doubles.
  const text = orderedText(salient);
  return createHash('sha256')
    .update(JSON.stringify([principal.key, view, method, text]))
    .digest('base64url');
}

/**
 * Seals a state for a caller and a request.
 *
 * @param expiresAtMs ms since the epoch.
 */
export function sealState(
  sealer: Sealer,
  state: RequestState,
  caller: Caller,
  request: Request,
  expiresAtMs: number,
): Promise<string> {
  return sealer.seal('state', { ...state, claim: claimOf(caller, request) }, expiresAtMs);
}

/**
 * Unseals a state that was sealed for this caller and request.
 *
 * @param raw JSON text of a string.
 * @throws {GatewayError} `invalid-state`: it was not, or it has expired.
 */
export async function unsealState(
  sealer: Sealer,
  raw: string,
  caller: Caller,
  request: Request,
): Promise<RequestState> {
  const payload = await sealer.unseal('state', String(JSON.parse(raw)), Date.now());
  if (payload === undefined || payload['claim'] !== claimOf(caller, request)) throw new GatewayError('invalid-state');
  const { kind, owner, park, round, upstream, tool, item, inner, ids } = payload;
  if (kind === 'park' && typeof owner === 'string' && typeof park === 'string' && typeof round === 'number') {
    const state = { kind, owner, park, round } as const;
    if (typeof upstream !== 'string') return state;
    if (typeof tool === 'string') return { ...state, upstream, tool };
    return typeof item === 'string' ? { ...state, upstream, item } : { ...state, upstream };
  }
  if (kind === 'relay' && typeof upstream === 'string') {
    return { kind, upstream, inner: typeof inner === 'string' ? inner : undefined };
  }
  if (kind === 'pages' && typeof upstream === 'string' && typeof owner === 'string' && Array.isArray(ids)) {
    return { kind, upstream, ids: ids.map(String), owner };
  }
  throw new GatewayError('invalid-state');
}
