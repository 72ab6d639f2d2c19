import { createRemoteJWKSet, jwtVerify } from 'jose';
import { type Configuration, errors, type KoaContextWithOIDC, type Provider, type ResourceServer } from 'oidc-provider';

/** The grant type of RFC 8693. */
export const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';

/** Names the exchanging client as the actor of the tokens that it gets. A setting of the provider. */
export const actorOfExchange: Configuration['extraTokenClaims'] = (_context, token) =>
  'gty' in token && token.gty === EXCHANGE ? { act: { sub: token.clientId } } : undefined;

/**
 * Adds the token exchange of RFC 8693 to a provider, which has it not built in. Everything else is the provider's own: the token endpoint, the client
 * authentication, the keys, and the form of tokens and errors.
 *
 * @param resourceServer returns the facts about a resource that tokens are for.
 */
export function addExchange(provider: Provider, resourceServer: (resource: string) => ResourceServer): void {
  const { issuer } = provider;
  const keys = createRemoteJWKSet(new URL('/jwks', issuer));
  const handler = async (context: KoaContextWithOIDC): Promise<void> => {
    const { client, params = {} } = context.oidc;
    const { subject_token: subject, subject_token_type: type, resource, scope } = params;
    if (client === undefined || typeof subject !== 'string' || type !== ACCESS_TOKEN)
      throw new errors.InvalidRequest('not the token of a user');
    if (typeof resource !== 'string') throw new errors.InvalidTarget();
    const { payload } = await jwtVerify(subject, keys, { issuer, typ: 'at+jwt' }).catch(() => {
      throw new errors.InvalidGrant('the subject token is not valid');
    });
    const { sub = '', scope: granted } = payload;
    const held = typeof granted === 'string' ? granted.split(' ') : [];
    const wanted = typeof scope === 'string' ? scope.split(' ') : held;
    if (!wanted.every((one) => held.includes(one)))
      throw new errors.InvalidScope('beyond the subject token', String(scope));
    const token = new provider.AccessToken({
      client,
      accountId: sub,
      scope: wanted.join(' '),
      resourceServer: resourceServer(resource),
      gty: EXCHANGE,
      grantId: '',
    });
    context.oidc.entity('AccessToken', token);
    context.body = {
      access_token: await token.save(),
      issued_token_type: ACCESS_TOKEN,
      token_type: token.tokenType,
      expires_in: token.expiration,
      scope: token.scope,
    };
  };
  const names = ['subject_token', 'subject_token_type', 'requested_token_type', 'resource', 'scope'];
  provider.registerGrantType(EXCHANGE, handler, names);
}
