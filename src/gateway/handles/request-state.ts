import { createHash } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { Caller } from '../exchange/caller.ts';
import type { Sealer } from './sealer.ts';

/** What a `requestState` of ours says. */
export type RequestState =
  /** A call of `owner`, and the round of questions that is answered. */
  | { readonly kind: 'park'; readonly owner: string; readonly park: string; readonly round: number }
  /** `inner`: what the upstream itself gave, as raw JSON text. */
  | { readonly kind: 'relay'; readonly upstream: string; readonly inner: string | undefined }
  /** Pages the user was sent to, by the names the upstream gave them. */
  | { readonly kind: 'pages'; readonly upstream: string; readonly ids: readonly string[] };

/** Whom a state is for, and for which request: nobody else can use it, and for nothing else. */
function claimOf({ principal, view }: Caller, { method, params }: Request): string {
  const bare = (params ?? RawObject.EMPTY).with('inputResponses', undefined).with('requestState', undefined);
  const salient = bare.with('_meta', undefined).toString();
  // Parsed, since a client may write the same parameters in another way.
  const text = canonical(JSON.parse(salient));
  return createHash('sha256')
    .update(JSON.stringify([principal.key, view, method, text]))
    .digest('base64url');
}

function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  const entries = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join(',')}}`;
}

/** @param expiresAtMs ms since the epoch. */
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
 * What we sealed for this very request.
 *
 * @param raw JSON text of a string.
 * @throws {GatewayError} `invalid-state`
 */
export async function unsealState(
  sealer: Sealer,
  raw: string,
  caller: Caller,
  request: Request,
): Promise<RequestState> {
  const payload = await sealer.unseal('state', String(JSON.parse(raw)), Date.now());
  if (payload === undefined || payload['claim'] !== claimOf(caller, request)) throw new GatewayError('invalid-state');
  const { kind, owner, park, round, upstream, inner, ids } = payload;
  if (kind === 'park' && typeof owner === 'string' && typeof park === 'string' && typeof round === 'number') {
    return { kind, owner, park, round };
  }
  if (kind === 'relay' && typeof upstream === 'string') {
    return { kind, upstream, inner: typeof inner === 'string' ? inner : undefined };
  }
  if (kind === 'pages' && typeof upstream === 'string' && Array.isArray(ids)) {
    return { kind, upstream, ids: ids.map(String) };
  }
  throw new GatewayError('invalid-state');
}
