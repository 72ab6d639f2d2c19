import { endpointPath } from '../endpoint-path.ts';
import { RawObject } from '../json/json.ts';
import type { AccessConfig, ExternalConfig } from './access-config.ts';
import type { Item } from './decide.ts';
import { claimsOf, groupsOf } from './identity.ts';
import { isAnonymous, type Principal } from './principal.ts';
import { canonicalUri } from '../catalog/resources/uri-form.ts';

/** A request that a decision point is asked about. */
export interface ExternalRequest {
  readonly principal: Principal;
  /** Id of the view. */
  readonly view: string;
  readonly method: string;
  readonly item: Item;
  /** The arguments as JSON; undefined if they are not sent. */
  readonly args: string | undefined;
}

/** The end of a question. */
export interface ExternalAnswer {
  /**
   * `late`, `failed`: there is no decision in time, or none at all. `overloaded`, `too-large`: it was not asked. `ambiguous`: it was not
   * asked since the arguments have two readings, which is a denial.
   */
  readonly outcome: 'allowed' | 'denied' | 'ambiguous' | 'late' | 'failed' | 'overloaded' | 'too-large';
  readonly why: string;
}

/** Returns whether a request is denied, and not refused for want of a decision. */
export function isDenial(outcome: ExternalAnswer['outcome']): boolean {
  return outcome === 'denied' || outcome === 'ambiguous';
}

/** Returns whether a decision point decides about the requests of an upstream. */
export function decidesAbout({ upstreams }: ExternalConfig, upstream: string): boolean {
  return upstreams?.includes(upstream) ?? true;
}

/**
 * Returns the question about a request as JSON, without credentials.
 *
 * @see https://openid.net/specs/authorization-api-1_0.html
 */
export function externalQuestion(
  { claims: declared, groupClaims }: Pick<AccessConfig, 'claims' | 'groupClaims'>,
  { principal, view, method, item, args }: ExternalRequest,
  now: Date,
): string {
  const { label, issuer, clientId, scopes, keyName } = principal;
  const claims = claimsOf(principal, declared);
  const groups = groupsOf(principal, claims, groupClaims);
  const type = keyName !== undefined ? 'key' : isAnonymous(principal) ? 'anonymous' : 'user';
  const subject = { type, id: label, properties: { issuer, clientId, groups, scopes, claims } };
  const { kind, upstream, name, hints } = item;
  const isUri = kind === 'resource' || kind === 'template';
  const own = kind === 'tool' ? { hints } : kind === 'resource' ? { canonicalUri: canonicalUri(name) } : {};
  const properties = RawObject.of({ upstream, name, ...own }).with('arguments', args);
  const resource = RawObject.of({ type: kind, id: isUri ? name : `${upstream}/${name}` });
  return RawObject.of({ subject, action: { name: method } })
    .with('resource', resource.with('properties', properties.toString()).toString())
    .with('context', JSON.stringify({ endpoint: endpointPath(view), time: now.toISOString() }))
    .toString();
}
