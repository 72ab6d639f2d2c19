import { createLocalJWKSet, type JSONWebKeySet, type JWK } from 'jose';
import { isLoopback } from '../config/address.ts';

const TIMEOUT_MS = 5_000;
const LIMIT_BYTES = 256 * 1024;

export interface KeySet {
  readonly keysFor: ReturnType<typeof createLocalJWKSet>;
  /** Ids of the keys, `''` for those that have none. */
  readonly kids: ReadonlySet<string>;
}

/** @throws {TypeError} unless it is `https:`, or `http:` to this machine. */
export function checkedJwksUrl(text: string): string {
  const { protocol, hostname } = new URL(text);
  if (protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')))) return text;
  throw new TypeError(`JWKS URL must be https, or http to this machine: ${text}`);
}

function isJwk(value: unknown): value is JWK {
  return typeof value === 'object' && value !== null && 'kty' in value && typeof value.kty === 'string';
}

/** A key we cannot make sense of costs only itself. */
function parse(text: string): JSONWebKeySet {
  const document: unknown = JSON.parse(text);
  if (typeof document !== 'object' || document === null || !('keys' in document) || !Array.isArray(document.keys)) {
    throw new TypeError('not a JWK Set');
  }
  return { keys: document.keys.filter(isJwk) };
}

/**
 * Fetches a JWK Set, following no redirect.
 *
 * @throws when it cannot be had whole, in time and below the size limit, or is none.
 */
export async function downloadKeySet(url: string): Promise<KeySet> {
  // Loaded only here, since it takes a tenth of a second.
  const { request } = await import('undici');
  const { statusCode, body } = await request(url, {
    headers: { accept: 'application/jwk-set+json, application/json' },
    // Once in minutes: a connection kept for that long would be dead more often than not.
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
