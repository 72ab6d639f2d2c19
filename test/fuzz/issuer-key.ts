import { createHmac, generateKeyPairSync, type JsonWebKey, type KeyObject, sign } from 'node:crypto';

type Members = Readonly<Record<string, unknown>>;

const LIFETIME_S = 3_600;

/** Signs a token. The header decides how, and what the header and the claims do not name is right. Undefined leaves a member out. */
export type SignToken = (header: Members, claims: Members) => string;

/** An ES256 key of an issuer, which signs access tokens. */
export class IssuerKey {
  static readonly KID = 'one';
  readonly publicJwk: JsonWebKey;
  readonly #privateKey: KeyObject;
  /** The public key as text, which a server that takes `HS256` for any key would use as the secret. */
  readonly #publicPem: string;
  readonly #claims: Members;

  /** @param claims those of all its tokens, such as `iss` and `aud`. */
  constructor(claims: Members) {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    this.publicJwk = { ...publicKey.export({ format: 'jwk' }), kid: IssuerKey.KID, alg: 'ES256', use: 'sig' };
    this.#privateKey = privateKey;
    this.#publicPem = publicKey.export({ format: 'pem', type: 'spki' }).toString();
    this.#claims = claims;
  }

  /** @param secret of a token with a symmetric algorithm; by default the public key. */
  sign(header: Members, claims: Members, secret = this.#publicPem): string {
    const now = Math.floor(Date.now() / 1_000);
    const full: Members = { alg: 'ES256', kid: IssuerKey.KID, typ: 'at+jwt', ...header };
    const common = { sub: 'fuzz', client_id: 'fuzz', iat: now, exp: now + LIFETIME_S };
    const payload = { ...this.#claims, ...common, ...claims };
    const parts = [full, payload].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'));
    const signed = parts.join('.');
    return `${signed}.${this.#signature(String(full['alg']), signed, secret)}`;
  }

  #signature(alg: string, signed: string, secret: string): string {
    if (alg === 'none') return '';
    if (alg.startsWith('HS')) return createHmac('sha256', secret).update(signed).digest('base64url');
    const key = { key: this.#privateKey, dsaEncoding: 'ieee-p1363' as const };
    return sign('sha256', Buffer.from(signed), key).toString('base64url');
  }
}
