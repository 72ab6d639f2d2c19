import { createServer, type IncomingHttpHeaders } from 'node:http';
import { createLocalJWKSet, exportJWK, generateKeyPair, jwtVerify, SignJWT } from 'jose';
import { listenLocally } from './local-port.ts';

const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';

/** An authorization server that signs people in, and exchanges their tokens (RFC 8693). */
export interface ExchangeIssuer extends AsyncDisposable {
  readonly issuer: string;
  readonly jwksUrl: string;
  readonly client: { readonly id: string; readonly secret: string };
  /** The exchanges so far: subjects, or the OAuth errors. */
  readonly exchanges: readonly string[];
  /** Subjects for whose tokens the endpoint answers with this status and no OAuth error. */
  readonly failing: Map<string, number>;
  /** Returns the token of a person for the gateway. An exchanged token has its scopes, or those that are asked for. */
  tokenFor(sub: string, audience: string, scope?: string): Promise<string>;
  /** Returns the claims of a token of this issuer for an audience; undefined for any other. */
  claimsOf(authorization: string | undefined, audience: string): Promise<Readonly<Record<string, unknown>> | undefined>;
}

async function bodyOf(request: AsyncIterable<unknown>): Promise<URLSearchParams> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return new URLSearchParams(text);
}

/** Starts the server on a port of its own. */
export async function startExchangeIssuer(): Promise<ExchangeIssuer> {
  const { privateKey, publicKey } = await generateKeyPair('ES256');
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES256', use: 'sig' }] };
  const keys = createLocalJWKSet(jwks);
  const client = { id: 'gateway', secret: 'the-secret-of-the-exchanging-client' };
  const exchanges: string[] = [];
  const failing = new Map<string, number>();
  let issuer = '';
  const sign = async (claims: Readonly<Record<string, unknown>>, audience: string) =>
    await new SignJWT({ ...claims })
      .setProtectedHeader({ alg: 'ES256', kid: 'k', typ: 'at+jwt' })
      .setIssuer(issuer)
      .setAudience(audience)
      .setIssuedAt()
      .setExpirationTime('10m')
      .sign(privateKey);

  const exchange = async (headers: IncomingHttpHeaders, form: URLSearchParams): Promise<readonly [number, object]> => {
    const basic = `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}`;
    if (headers.authorization !== basic) return [401, { error: 'invalid_client' }];
    if (form.get('grant_type') !== EXCHANGE) return [400, { error: 'unsupported_grant_type' }];
    try {
      const { payload } = await jwtVerify(form.get('subject_token') ?? '', keys, { issuer, audience: 'gateway' });
      const { sub = '' } = payload;
      const status = failing.get(sub);
      if (status !== undefined) return [status, {}];
      const scope = form.get('scope') ?? payload['scope'];
      const claims = { sub, act: { sub: client.id }, ...(scope === undefined ? {} : { scope }) };
      exchanges.push(sub);
      const token = await sign(claims, form.get('resource') ?? '');
      const issued = 'urn:ietf:params:oauth:token-type:access_token';
      return [200, { access_token: token, issued_token_type: issued, token_type: 'Bearer', expires_in: 600 }];
    } catch {
      return [400, { error: 'invalid_grant' }];
    }
  };

  const server = createServer((request, response) => {
    const answer = async (): Promise<readonly [number, object]> => {
      if (request.url === '/jwks') return [200, jwks];
      if (request.url === '/token') return await exchange(request.headers, await bodyOf(request));
      if (request.url === '/.well-known/oauth-authorization-server') {
        return [200, { issuer, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/jwks` }];
      }
      return [404, {}];
    };
    answer().then(
      ([status, body]) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body)),
      () => response.destroy(),
    );
  });
  const port = await listenLocally(server);
  issuer = `http://127.0.0.1:${port}`;
  return {
    issuer,
    jwksUrl: `${issuer}/jwks`,
    client,
    exchanges,
    failing,
    tokenFor: (sub, audience, scope) => sign({ sub, ...(scope === undefined ? {} : { scope }) }, audience),
    claimsOf: async (authorization, audience) => {
      try {
        const token = /^Bearer (.+)$/.exec(authorization ?? '')?.[1] ?? '';
        return (await jwtVerify(token, keys, { issuer, audience })).payload;
      } catch {
        return undefined;
      }
    },
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await Promise.resolve();
    },
  };
}
