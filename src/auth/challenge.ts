import type { JwtIssuerConfig } from '../config/values/config.ts';
import { askable } from '../policy/scopes-on-demand.ts';

interface Challenge {
  /** URL of the protected resource metadata, if there is any. */
  readonly metadata: string | undefined;
  /** Absent if the request had no credentials. */
  readonly error?: 'invalid_request' | 'invalid_token' | 'insufficient_scope';
  /** One sentence for people. */
  readonly description?: string;
  readonly scopes: readonly string[];
}

/** Returns the scopes that clients are told to request. An issuer may spell them otherwise in its tokens. */
export function advertisedScopes(
  rule: Pick<JwtIssuerConfig, 'requiredScopes' | 'advertisedScopes'>,
): readonly string[] {
  return rule.advertisedScopes ?? rule.requiredScopes;
}

function quoted(text: string): string {
  return `"${text.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&')}"`;
}

/**
 * Returns the value of `WWW-Authenticate`.
 *
 * @see https://www.rfc-editor.org/rfc/rfc6750#section-3
 * @see https://www.rfc-editor.org/rfc/rfc9728#section-5.1
 */
export function challengeText({ metadata, error, description, scopes }: Challenge): string {
  const scope = askable(scopes).join(' ');
  const parameters: string[] = [];
  if (metadata !== undefined) parameters.push(`resource_metadata=${quoted(metadata)}`);
  if (error !== undefined) parameters.push(`error=${quoted(error)}`);
  if (description !== undefined) parameters.push(`error_description=${quoted(description)}`);
  if (scope !== '') parameters.push(`scope=${quoted(scope)}`);
  return parameters.length === 0 ? 'Bearer' : `Bearer ${parameters.join(', ')}`;
}

/** Returns the challenge of a request that its token would allow with other scopes. @param metadata URL of the metadata of the endpoint. */
export function scopeChallengeText(scopes: readonly string[], metadata?: string): string {
  const description = 'the request needs a token with these scopes';
  return challengeText({ metadata, error: 'insufficient_scope', description, scopes });
}
