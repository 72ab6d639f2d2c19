import { createLocalJWKSet, type JSONWebKeySet, type JWK } from 'jose';
import { isLoopback } from '../config/schema/address.ts';

const TIMEOUT_MS = 5_000;
const LIMIT_BYTES = 256 * 1024;

export interface KeySet {
  readonly keysFor: ReturnType<typeof createLocalJWKSet>;
  /** Key ids; `''` for keys without one. */
  readonly kids: ReadonlySet<string>;
}

/** Returns the URL of a JWK Set unchanged. @throws {TypeError} unless it is `https:`, or `http:` to this machine. */
export function checkedJwksUrl(text: string): string {
  const { protocol, hostname } = new URL(text);
  if (protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')))) return text;
  throw new TypeError(`JWKS URL must be https, or http to this machine: ${text}`);
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
 * Fetches a JWK Set. Redirects are not followed.
 *
 * @throws if the set is not received completely within 5 s and 256 KiB, or is not a JWK Set.
 */
export async function downloadKeySet(url: string): Promise<KeySet> {
  // Loaded only here, since it takes a tenth of a second.
  const { request } = await import('undici');
  const { statusCode, body } = await request(url, {
    headers: { accept: 'application/jwk-set+json, application/json' },
    // Fetches are minutes apart; an idle connection would mostly be closed by then.
    reset: true,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (statusCode !== 200) {
    body.on('error', () => undefined).destroy();
    throw new Error(`JWKS endpoint answered ${statusCode}`);
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    if (!Buffer.isBuffer(chunk)) continue;
    bytes += chunk.length;
    if (bytes > LIMIT_BYTES) throw new Error(`JWK Set is larger than ${LIMIT_BYTES} bytes`);
    chunks.push(chunk);
  }
  const set = parse(Buffer.concat(chunks).toString());
  return { keysFor: createLocalJWKSet(set), kids: new Set(set.keys.map(({ kid }) => kid ?? '')) };
}
