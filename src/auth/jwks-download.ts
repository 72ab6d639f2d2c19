import { createLocalJWKSet, type JSONWebKeySet, type JWK } from 'jose';
import type { Egress } from '../egress/egress.ts';

export interface KeySet {
  readonly keysFor: ReturnType<typeof createLocalJWKSet>;
  /** Key ids; `''` for keys without one. */
  readonly kids: ReadonlySet<string>;
}

function isJwk(value: unknown): value is JWK {
  return typeof value === 'object' && value !== null && 'kty' in value && typeof value.kty === 'string';
}

/**
 * Parses a JWK Set. Keys of unknown form are dropped; the others stay usable. @throws {TypeError} if it is not a JWK
 * Set.
 */
function parse(text: string): JSONWebKeySet {
  const document: unknown = JSON.parse(text);
  if (typeof document !== 'object' || document === null || !('keys' in document) || !Array.isArray(document.keys)) {
    throw new TypeError('not a JWK Set');
  }
  return { keys: document.keys.filter(isJwk) };
}

/**
 * Fetches a JWK Set, whose URL is in the config. Redirects are not followed.
 *
 * @throws if the set is not received completely within 5 s and 256 KiB, or is not a JWK Set.
 */
export async function downloadKeySet(url: string, egress: Egress): Promise<KeySet> {
  const headers = { accept: 'application/jwk-set+json, application/json' };
  const response = await egress.fetch(url, 'configured', { headers });
  if (response.status !== 200) throw new Error(`JWKS endpoint answered ${response.status}`);
  const set = parse(await response.text());
  return { keysFor: createLocalJWKSet(set), kids: new Set(set.keys.map(({ kid }) => kid ?? '')) };
}
