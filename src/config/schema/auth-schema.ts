import { z } from 'zod';
import { isSecureUrl } from './address.ts';
import { isPlaceholder, isPlaceholderHash } from './placeholder.ts';
import { KEY_COMMAND } from './random-key.ts';
import { duration, flag, oneOf, refused, text, texts } from './scalars.ts';

/** Asymmetric algorithms only: a key that verifies a symmetric signature can also create one. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
] as const;

const issuerUrl = () =>
  text('expected an https:// URL').refine(isSecureUrl, {
    error: 'expected an https:// URL (http:// only to this machine), without user name and password',
  });

const audiences = texts()
  .prefault([])
  .describe("Accepted `aud` values. Empty: the endpoint's own URI, made from publicUrl.");

/** The settings about scopes of each issuer. */
const SCOPES = {
  requiredScopes: texts().prefault([]).describe('Scopes that every token must have.'),
  advertisedScopes: texts()
    .optional()
    .describe(
      'Scopes that clients are told to request, where the issuer spells them otherwise than in tokens, as Entra does. Default: `requiredScopes`.',
    ),
  scopesOnDemand: z
    .array(
      z.union(
        [
          text(),
          z.strictObject({
            scope: text().describe('The scope as tokens spell it.'),
            advertised: text().describe('The scope as clients request it.'),
          }),
        ],
        { error: 'expected a scope, or a map with scope and advertised' },
      ),
      { error: 'expected a list of scopes' },
    )
    .max(16, { error: 'expected at most 16 scopes' })
    .prefault([])
    .describe(
      'Scopes that clients are told to request when a request needs them, as tokens spell them; `{ scope, advertised }` where requests spell one otherwise.',
    ),
};

const introspection = z.strictObject({
  issuer: text('expected the issuer').describe(
    'The issuer, as its metadata spell it. Clients are sent there to sign in.',
  ),
  endpoint: issuerUrl().describe('URL that is asked about each token: https, or http to this machine.'),
  clientId: text().describe('The client id of the gateway at the issuer.'),
  clientSecret: text()
    .refine((secret) => !isPlaceholder(secret), {
      error: 'this is the text of an example; write the secret of the issuer',
    })
    .describe('Its secret, sent as HTTP Basic credentials.'),
  audiences,
  ...SCOPES,
  tokenPrefix: z
    .string({ error: 'expected text' })
    .prefault('')
    .describe(
      'Beginning of the tokens of this issuer. Needed for all entries but one: a token is shown to one issuer only.',
    ),
});

const HASH_COMMAND = `printf %s "$KEY" | sha256sum`;
const EMPTY_SHA256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

const jwt = z.strictObject({
  issuer: text('expected the issuer, exactly as the tokens spell it').describe('`iss` of the tokens, exactly.'),
  jwksUrl: issuerUrl().describe("URL of the issuer's public keys (JWK Set): https, or http to this machine."),
  audiences,
  algorithms: z
    .array(oneOf(ALGORITHMS), { error: 'expected a list of algorithms' })
    .min(1, { error: 'expected at least one algorithm' })
    .prefault(['RS256', 'ES256', 'EdDSA'])
    .describe('Accepted signature algorithms. Symmetric ones are never accepted.'),
  ...SCOPES,
  types: z
    .array(text(), { error: 'expected a list of types' })
    .min(1, { error: 'expected at least one type' })
    .optional()
    .describe(
      'Accepted values of `typ` in the header of tokens, such as `at+jwt`; a token without one is then refused. Default: `JWT`, `at+jwt` or none.',
    ),
  leeway: duration('0s', '1m')
    .prefault('30s')
    .describe('Tolerated difference between the clock of the issuer and that of the gateway.'),
});

/** An API key: one of clients, or of the operator. */
export const apiKey = z.strictObject(
  {
    name: text().describe('Name of the client or user of the key. It is the principal, and appears in logs.'),
    sha256: text('expected 64 hex digits')
      .regex(/^[0-9a-fA-F]{64}$/, { error: `expected 64 hex digits; make them with: ${HASH_COMMAND}` })
      .toLowerCase()
      .refine((hash) => hash !== EMPTY_SHA256, { error: 'this is the hash of an empty key' })
      .refine((hash) => !isPlaceholderHash(hash), {
        error: `this is the hash of an example such as "change-me"; "${KEY_COMMAND}" makes a key`,
      })
      .describe(`SHA-256 of the key, hex: ${HASH_COMMAND}`),
    key: refused(`keys are not kept in plain text; write sha256 instead, made with: ${HASH_COMMAND}`),
  },
  { error: 'expected a map with "name" and "sha256"' },
);

const clientKey = apiKey.extend({
  groups: texts().optional().describe('Groups of the client or user of the key, for access rules.'),
});

/** Settings of the authentication of clients: everything under `gateway.auth`. */
export const authSchema = z.strictObject({
  jwt: z.array(jwt, { error: 'expected a list' }).prefault([]).describe('Issuers whose bearer tokens are accepted.'),
  introspection: z
    .array(introspection, { error: 'expected a list' })
    .prefault([])
    .describe('Issuers of opaque tokens. They are asked about each token (RFC 7662).'),
  apiKeys: z
    .array(clientKey, { error: 'expected a list' })
    .prefault([])
    .describe('Static keys, sent as bearer tokens.'),
  keyFile: text()
    .optional()
    .describe(
      'File with further keys, relative to this file. `linkspan key` changes it; the gateway reads it again when it changes.',
    ),
  keysInRedis: flag()
    .optional()
    .describe('Keeps such keys in the Redis of `gateway.redis` instead, so that a change holds on every replica.'),
});
