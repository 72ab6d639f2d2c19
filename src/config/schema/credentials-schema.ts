import { createPrivateKey, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import { CLIENT_AUTH_METHODS, CREDENTIAL_KINDS, SIGNING_CURVES, type UpstreamAuth } from '../values/credentials.ts';
import { isSecureUrl } from './address.ts';
import { decoded } from './redis-url.ts';
import { duration, networks, textOrScalar, oneOf, text, texts } from './scalars.ts';

const SECURE_URL = 'expected an https URL, or an http one to this machine';

const secureUrl = () => text(SECURE_URL).refine(isSecureUrl, { error: SECURE_URL });

const KEY_FILE = 'expected an RSA, EC or Ed25519 key as PEM text; write "${file:key.pem}"';

const LEAST_RSA_BITS = 2_048;

/** Returns what is wrong with a private key for signing, or undefined. @param pem not encrypted. */
function signingKeyFault(pem: string): string | undefined {
  const key = privateKeyOf(pem);
  const { modulusLength = 0, namedCurve = '' } = key?.asymmetricKeyDetails ?? {};
  const type = key?.asymmetricKeyType ?? '';
  if (type === 'rsa' && modulusLength < LEAST_RSA_BITS) return `expected an RSA key of at least ${LEAST_RSA_BITS} bits`;
  if (type === 'ec' && !SIGNING_CURVES.has(namedCurve)) return 'expected an EC key on the curve P-256, P-384 or P-521';
  return ['rsa', 'ec', 'ed25519'].includes(type) ? undefined : KEY_FILE;
}

function privateKeyOf(pem: string): KeyObject | undefined {
  try {
    return createPrivateKey(pem);
  } catch {
    return undefined;
  }
}

/** Parameters of token requests that other settings decide. */
const PROTOCOL_PARAMETERS: ReadonlySet<string> = new Set([
  'grant_type',
  'client_id',
  'client_secret',
  'client_assertion',
  'client_assertion_type',
  'scope',
  'resource',
  'subject_token',
  'subject_token_type',
  'actor_token',
  'actor_token_type',
  'assertion',
  'code',
  'refresh_token',
]);

/** The settings that each kind may have, besides `kind`. */
const TOKEN_SETTINGS = [
  'issuer',
  'tokenUrl',
  'clientId',
  'clientSecret',
  'privateKey',
  'keyId',
  'method',
  'scopes',
  'stepUpScopes',
  'resource',
  'parameters',
] as const;
const SETTINGS = {
  static: [],
  clientCredentials: TOKEN_SETTINGS,
  exchange: TOKEN_SETTINGS,
  identity: ['audience', 'lifetime'],
} as const satisfies Record<(typeof CREDENTIAL_KINDS)[number], readonly string[]>;

const fields = z.strictObject(
  {
    kind: oneOf(CREDENTIAL_KINDS).describe(
      '`static`: the `headers` and nothing else. `clientCredentials`: a token that the gateway gets for itself. `exchange`: a token for ' +
        'the calling user, in exchange for its own (RFC 8693). `identity`: a token signed by the gateway that says who calls.',
    ),
    issuer: secureUrl()
      .optional()
      .describe('The authorization server. Its metadata name the token endpoint. Or give `tokenUrl`.'),
    tokenUrl: secureUrl().optional().describe('The token endpoint, instead of `issuer`.'),
    clientId: text().optional().describe('The client id of the gateway at the authorization server.'),
    clientSecret: text().optional().describe('Its secret. Or give `privateKey`.'),
    privateKey: text(KEY_FILE)
      .superRefine((pem, context) => {
        const fault = signingKeyFault(pem);
        if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
      })
      .optional()
      .describe('Its private key in PEM, not encrypted, for `private_key_jwt`: "${file:key.pem}".'),
    keyId: text().optional().describe('`kid` of the private key, if the authorization server asks for one.'),
    method: oneOf(CLIENT_AUTH_METHODS)
      .optional()
      .describe(
        'How the gateway authenticates. Default: `private_key_jwt` with a private key, else `client_secret_basic`.',
      ),
    scopes: texts().optional().describe('Scopes to ask for. Default: those that the authorization server chooses.'),
    stepUpScopes: texts()
      .optional()
      .describe(
        'Further scopes that the gateway may ask for once the upstream answers 403 `insufficient_scope` with their names. It then sends the refused request once ' +
          'more. Default: none.',
      ),
    resource: text('expected a URI, or "omit"')
      .refine((value) => value === 'omit' || URL.canParse(value), { error: 'expected a URI, or "omit"' })
      .optional()
      .describe(
        'The resource that the token is for (RFC 8707). Default: `url`. `omit` names none, for servers such as Entra.',
      ),
    parameters: z
      .record(text(), textOrScalar(), { error: 'expected a map of parameters' })
      .optional()
      .describe('Further parameters of the token request, such as {audience: …} for Auth0.'),
    audience: text().optional().describe('identity: `aud` of the token. Default: `url`.'),
    lifetime: duration('30s', '1h').optional().describe('identity: how long a token is valid. Default: 5m.'),
  },
  { error: 'expected a map such as {kind: clientCredentials, issuer: …, clientId: …, clientSecret: …}' },
);

type Fields = z.output<typeof fields>;

/** Returns a problem of settings that are right one by one, at its key. */
function faultOf(given: Fields): { readonly key: keyof Fields; readonly message: string } | undefined {
  const allowed: readonly string[] = SETTINGS[given.kind];
  for (const key of fields.keyof().options) {
    if (key !== 'kind' && given[key] !== undefined && !allowed.includes(key)) {
      return { key, message: `has no meaning for kind "${given.kind}"` };
    }
  }
  if (given.kind !== 'clientCredentials' && given.kind !== 'exchange') return undefined;
  const { issuer, tokenUrl, clientId, clientSecret, privateKey, method, keyId, parameters = {} } = given;
  const { scopes = [], stepUpScopes = [] } = given;
  if ((issuer === undefined) === (tokenUrl === undefined)) {
    return { key: 'tokenUrl', message: 'needs either "issuer" or "tokenUrl"' };
  }
  if (clientId === undefined) return { key: 'clientId', message: `"${given.kind}" needs "clientId"` };
  if ((clientSecret === undefined) === (privateKey === undefined)) {
    return { key: 'clientSecret', message: 'needs either "clientSecret" or "privateKey"' };
  }
  const needsKey = method === 'private_key_jwt';
  if (method !== undefined && needsKey !== (privateKey !== undefined)) {
    return { key: 'method', message: `"${method}" needs "${needsKey ? 'privateKey' : 'clientSecret'}"` };
  }
  if (keyId !== undefined && privateKey === undefined) return { key: 'keyId', message: 'needs "privateKey"' };
  if (stepUpScopes.length > 0 && scopes.length === 0) {
    return { key: 'stepUpScopes', message: 'needs "scopes": a token with further scopes is asked for with both' };
  }
  const taken = Object.keys(parameters).find((name) => PROTOCOL_PARAMETERS.has(name));
  if (taken !== undefined) return { key: 'parameters', message: `"${taken}" is decided by other settings` };
  return undefined;
}

/** Schema of the credentials that the gateway gets for an upstream. */
export const upstreamAuth = fields.superRefine((given, context) => {
  const fault = faultOf(given);
  if (fault !== undefined) context.addIssue({ code: 'custom', path: [fault.key], message: fault.message });
});

const DEFAULT_LIFETIME_MS = 300_000;

/** Returns the credentials of an entry; undefined for static ones. @param url of the upstream. */
export function upstreamAuthOf(given: Fields | undefined, url: string): UpstreamAuth | undefined {
  if (given === undefined || given.kind === 'static') return undefined;
  if (given.kind === 'identity') {
    const { audience = url, lifetime = DEFAULT_LIFETIME_MS } = given;
    return { kind: 'identity', audience, lifetimeMs: lifetime };
  }
  const { kind, issuer, tokenUrl, clientId = '', clientSecret, privateKey, keyId, parameters = {} } = given;
  const { method = privateKey === undefined ? 'client_secret_basic' : 'private_key_jwt', resource = url } = given;
  const { scopes = [], stepUpScopes = [] } = given;
  const client = { clientId, method, clientSecret, privateKey, keyId };
  return {
    kind,
    issuer,
    tokenUrl,
    ...client,
    scopes,
    stepUpScopes: stepUpScopes.filter((scope) => !scopes.includes(scope)),
    resource: resource === 'omit' ? undefined : resource,
    parameters,
  };
}

const PROXY_URL = 'expected the URL of an HTTP proxy, such as "http://proxy.example.com:3128"';
const PROXY_PERCENT = 'the user name and password have to be percent-encoded: "%25" for "%"';

function isDecodable(url: string): boolean {
  const { username = '', password = '' } = URL.parse(url) ?? {};
  return decoded(`${username}:${password}`) !== undefined;
}

/** Returns the hosts in a text with commas; none in an empty text, which "${NO_PROXY:-}" is without the variable. */
function hostsIn(text: string): string[] {
  const parts = text.split(',').map((part) => part.trim());
  return parts.filter((part) => part !== '');
}

/** Schema of the connections of the gateway to upstreams, issuers and receivers of records and traces. */
export const egressSchema = z.strictObject({
  proxy: text(PROXY_URL)
    .refine((value) => URL.canParse(value) && new URL(value).protocol === 'http:', { error: PROXY_URL })
    .refine(isDecodable, { error: PROXY_PERCENT })
    .optional()
    .describe(
      'HTTP proxy for upstreams with an https URL, and for authorization servers, audit records and traces, by CONNECT. Upstreams with an http URL are reached directly. ' +
        'The variables HTTPS_PROXY and HTTP_PROXY have no effect by themselves; write "${HTTPS_PROXY}".',
    ),
  noProxy: z
    .union([texts(), z.string().transform(hostsIn)], { error: 'expected a list of hosts' })
    .prefault([])
    .describe(
      'Hosts that are connected to without the proxy: a list, or a text with commas, such as "${NO_PROXY:-}". They are names, ' +
        '".example.com" for all below it, addresses and networks, each with or without a port. Loopback never uses the proxy.',
    ),
  privateNetworks: networks()
    .prefault([])
    .describe(
      'Networks, such as "10.0.0.0/8", that URLs may lead to which an issuer or upstream names, although they are not public. URLs in this ' +
        'file may lead anywhere.',
    ),
});
