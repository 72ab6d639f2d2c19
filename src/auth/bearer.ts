/** The outcome of reading the `Authorization` headers of a request. */
export type Credentials =
  | { readonly kind: 'token'; readonly token: string }
  /** No credentials, or another scheme. The answer asks for a bearer token. */
  | { readonly kind: 'none'; readonly why: string }
  | { readonly kind: 'malformed'; readonly why: string };

const SCHEME = /^([A-Za-z][A-Za-z0-9!#$%&'*+.^_`|~-]*)(?: +(.*))?$/;

/** @see https://www.rfc-editor.org/rfc/rfc6750#section-2.1 */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;

/**
 * Reads the bearer token of a request, which must have exactly one `Authorization` header.
 *
 * @param authorization every `Authorization` header of the request; Node's `headers` holds only the first.
 */
export function credentialsOf(authorization: readonly string[]): Credentials {
  const [header] = authorization;
  if (header === undefined) return { kind: 'none', why: 'no credentials' };
  if (authorization.length > 1) return { kind: 'malformed', why: 'more than one Authorization header' };

  const [, scheme, token] = SCHEME.exec(header) ?? [];
  if (scheme === undefined) return { kind: 'malformed', why: 'malformed Authorization header' };
  if (scheme.toLowerCase() !== 'bearer') return { kind: 'none', why: 'scheme is not Bearer' };
  if (token === undefined || !TOKEN.test(token)) return { kind: 'malformed', why: 'malformed bearer token' };
  return { kind: 'token', token };
}
