import type { CustomFetchOptions } from 'oauth4webapi';
import type { TokenAuth } from '../config/values/credentials.ts';
import { EgressError } from '../egress/egress-error.ts';
import type { Egress } from '../egress/egress.ts';
import { messageOf } from '../thrown.ts';
import { clientAuthOf } from './client-auth.ts';
import type { TokenEndpoint } from './issuer-metadata.ts';
import { normalizedTokenResponse } from './token-response.ts';

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';

export interface IssuedToken {
  readonly accessToken: string;
  /** Seconds; undefined if the server does not say. */
  readonly expiresInS: number | undefined;
  /** Undefined if the server does not say, which means those that were asked for. */
  readonly scopes: readonly string[] | undefined;
}

/** The authorization server refuses to give out a token, until an operator or user has acted. */
export class TokenRefusedError extends Error {
  override readonly name = 'TokenRefusedError';
  /** True if it refuses the client or its settings, whatever the subject token. */
  readonly isOfClient: boolean;
  readonly isOfScopes: boolean;

  /** @param code the OAuth error. */
  constructor(message: string, code: string) {
    super(message);
    this.isOfClient = OF_CLIENT.has(code);
    this.isOfScopes = code === 'invalid_scope';
  }
}

/** The authorization server gives out no token now, but may later. It was reached: a token that may do more must not stand in for this one. */
export class TokenDeniedError extends EgressError {}

/**
 * Asks a token endpoint for a token: for the gateway itself, or with a subject token for its user.
 *
 * @param subjectToken the verified token of the calling user. It goes to the token endpoint and nowhere else.
 * @throws {TokenRefusedError} if the server answers with an OAuth error that only an operator or user can end.
 * @throws {TokenDeniedError} for any other answer without a token, except 429 and 5xx. Another error says nothing about the credentials.
 * @see https://www.rfc-editor.org/rfc/rfc6749#section-4.4
 * @see https://www.rfc-editor.org/rfc/rfc8693#section-2.1
 */
export async function requestToken(
  auth: TokenAuth,
  { issuer, url, source }: TokenEndpoint,
  egress: Egress,
  subjectToken: string | undefined,
): Promise<IssuedToken> {
  const oauth = await import('oauth4webapi');
  const server = { issuer, token_endpoint: url };
  const client = { client_id: auth.clientId };
  const { scopes, resource, parameters } = auth;
  const body = new URLSearchParams({ ...parameters });
  if (scopes.length > 0) body.set('scope', scopes.join(' '));
  if (resource !== undefined) body.set('resource', resource);
  if (subjectToken !== undefined) {
    body.set('subject_token', subjectToken);
    body.set('subject_token_type', ACCESS_TOKEN);
    body.set('requested_token_type', parameters['requested_token_type'] ?? ACCESS_TOKEN);
  }
  const sent = [auth.clientSecret ?? ''];
  /** The status of the answer; 0 before it. */
  let answered = 0;
  const send = async (target: string, init: CustomFetchOptions<'POST', URLSearchParams>): Promise<Response> => {
    const { headers, body: form } = init;
    sent.push(...Object.entries(headers).flatMap(([name, value]) => (name === 'authorization' ? [value] : [])));
    sent.push(...SECRET_PARAMETERS.map((name) => form.get(name) ?? ''));
    const response = await egress.fetch(target, source, { method: 'POST', headers, body: form.toString() });
    const normalized = await normalizedTokenResponse(response);
    answered = response.status;
    return normalized;
  };
  const options = { [oauth.customFetch]: send, [oauth.allowInsecureRequests]: true };
  const grant = subjectToken === undefined ? 'client_credentials' : EXCHANGE;
  const clientAuth = await clientAuthOf(auth);
  try {
    const response = await oauth.genericTokenEndpointRequest(server, client, clientAuth, grant, body, options);
    const token = await oauth.processGenericTokenEndpointResponse(server, client, response);
    if (token.token_type !== 'bearer')
      throw new EgressError(`the token endpoint answered with a ${token.token_type} token`);
    // Such a token would break every request, and be kept until it expires.
    if (!/^[\x21-\x7e]+$/.test(token.access_token))
      throw new EgressError('the access token has characters that no header can carry');
    const { access_token: accessToken, expires_in: expiresInS, scope } = token;
    // Several servers write 0 for a token that does not end.
    return { accessToken, expiresInS: expiresInS === 0 ? undefined : expiresInS, scopes: scope?.split(/[ ,]+/) };
  } catch (thrown) {
    if (thrown instanceof oauth.ResponseBodyError) {
      const { error, error_description: description, status } = thrown;
      throw refusal(withoutSecrets(error, sent), withoutSecrets(description, sent), status);
    }
    const isChallenge = thrown instanceof oauth.WWWAuthenticateChallengeError;
    if (isChallenge && answered === 401) throw refusal('invalid_client', undefined, answered);
    const why = isChallenge ? `the token endpoint answered HTTP ${answered} with a challenge` : messageOf(thrown);
    const status = thrown instanceof EgressError ? (thrown.status ?? answered) : answered;
    if (status !== 0 && !isOverloaded(status)) throw new TokenDeniedError(why);
    throw isChallenge ? new EgressError(why) : thrown;
  }
}

const SECRET_PARAMETERS = ['client_secret', 'client_assertion', 'subject_token'];

/** Returns a text of the server, or another one if it repeats a secret of the request: the text goes to the log. */
function withoutSecrets<T extends string | undefined>(text: T, secrets: readonly string[]): T | 'a text with a secret' {
  const bare = secrets.map((secret) => secret.replace(/^Basic /, ''));
  return bare.some((secret) => secret !== '' && text?.includes(secret) === true) ? 'a text with a secret' : text;
}

/**
 * Errors that the same request gets until somebody has acted. Proxies and rate limits write other ones.
 *
 * @see https://www.rfc-editor.org/rfc/rfc6749#section-5.2
 * @see https://www.rfc-editor.org/rfc/rfc8693#section-2.2.2
 * @see https://openid.net/specs/openid-connect-core-1_0.html#AuthError
 */
const FINAL: ReadonlySet<string> = new Set(
  `invalid_request invalid_client invalid_grant unauthorized_client unsupported_grant_type invalid_scope invalid_target
   interaction_required login_required consent_required`.split(/\s+/),
);
/** Errors that no other subject token avoids. */
const OF_CLIENT: ReadonlySet<string> = new Set(
  'invalid_client unauthorized_client unsupported_grant_type invalid_scope invalid_target'.split(' '),
);
const MAX_DESCRIPTION_CHARS = 200;

function refusal(code: string, description: string | undefined, status: number): Error {
  const details = description === undefined ? '' : `: ${description.slice(0, MAX_DESCRIPTION_CHARS)}`;
  const message = `the token endpoint answered ${code.slice(0, 80)} (HTTP ${status})${details}`;
  if (isOverloaded(status)) return new EgressError(message);
  return FINAL.has(code) ? new TokenRefusedError(message, code) : new TokenDeniedError(message);
}

/** Returns whether a status says nothing about the request. */
function isOverloaded(status: number): boolean {
  return status === 429 || status >= 500;
}
