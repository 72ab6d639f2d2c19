import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { exportJWK, generateKeyPair } from 'jose';
import { type ClientMetadata, type Configuration, Provider, type ResourceServer } from 'oidc-provider';
import { actorOfExchange, addExchange } from './exchange-grant.ts';
import { listenLocally } from './local-port.ts';

const SCOPE = 'mcp';
const SECRET = 'the-secret-of-the-machine-client';

/** A real authorization server, with discovery, dynamic registration, resource indicators, introspection and token exchange. */
export interface RealIssuer extends AsyncDisposable {
  readonly issuer: string;
  readonly jwksUrl: string;
  /** The paths of all requests so far. */
  readonly paths: readonly string[];
  readonly introspectionUrl: string;
  /** The client that may ask for tokens of its own, and introspect tokens. */
  readonly client: { readonly id: string; readonly secret: string };
  /** Gets a token by the client credentials grant. @param scope of the token; empty for none. */
  token(resource: string, scope?: string): Promise<string>;
  /** Signs later tokens with another key, and forgets the former one. */
  rotateKeys(): Promise<void>;
  /** Answers nothing but 503 while true. */
  setDown(isDown: boolean): void;
}

async function signingJwk(kid: string): Promise<object> {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  return { ...(await exportJWK(privateKey)), kid, alg: 'RS256', use: 'sig' };
}

function resourceServer(audience: string, format: 'jwt' | 'opaque'): ResourceServer {
  return {
    scope: `${SCOPE} other`,
    audience,
    accessTokenTTL: 600,
    accessTokenFormat: format,
    ...(format === 'jwt' ? { jwt: { sign: { alg: 'RS256' as const } } } : {}),
  };
}

function configurationOf(jwk: object, format: 'jwt' | 'opaque', clients: readonly ClientMetadata[]): Configuration {
  return {
    jwks: { keys: [jwk] },
    clients: [
      {
        client_id: 'machine',
        client_secret: SECRET,
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      },
      ...clients.map((client) => ({
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
        ...client,
      })),
    ],
    scopes: [SCOPE, 'other', 'offline_access'],
    features: {
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context, resource) => resourceServer(resource, format),
      },
    },
    extraTokenClaims: actorOfExchange,
    pkce: { required: () => true },
    ttl: { Interaction: 600, Session: 600, Grant: 600, ClientCredentials: 600, AccessToken: 600 },
    cookies: { keys: ['a test'] },
  };
}

/** Starts the issuer on a port of its own. @param format of its access tokens. @param clients further ones, by default for the client credentials grant. */
export async function startRealIssuer(
  format: 'jwt' | 'opaque' = 'jwt',
  clients: readonly ClientMetadata[] = [],
): Promise<RealIssuer> {
  let handle: (request: IncomingMessage, response: ServerResponse) => unknown = () => undefined;
  let isDown = false;
  const paths: string[] = [];
  const server = createServer((request, response) => {
    paths.push(request.url ?? '');
    if (isDown) response.writeHead(503).end();
    else void handle(request, response);
  });
  const port = await listenLocally(server);
  const issuer = `http://127.0.0.1:${port}`;
  let keys = 0;
  const rotateKeys = async () => {
    const provider = new Provider(issuer, configurationOf(await signingJwk(`key-${++keys}`), format, clients));
    addExchange(provider, (resource) => resourceServer(resource, format));
    handle = provider.callback();
  };
  await rotateKeys();
  return {
    issuer,
    paths,
    jwksUrl: `${issuer}/jwks`,
    introspectionUrl: `${issuer}/token/introspection`,
    client: { id: 'machine', secret: SECRET },
    token: async (resource, scope = SCOPE) => {
      const body = new URLSearchParams({
        grant_type: 'client_credentials',
        resource,
        ...(scope === '' ? {} : { scope }),
      });
      const authorization = `Basic ${Buffer.from(`machine:${SECRET}`).toString('base64')}`;
      const response = await fetch(`${issuer}/token`, { method: 'POST', body, headers: { authorization } });
      const answer: { readonly access_token?: string } = JSON.parse(await response.text());
      if (answer.access_token === undefined) throw new Error(`no token: ${JSON.stringify(answer)}`);
      return answer.access_token;
    },
    rotateKeys,
    setDown: (down) => {
      isDown = down;
    },
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await Promise.resolve();
    },
  };
}

/**
 * Signs in and consents as a person does in a browser: follows redirects, keeps cookies, and submits forms.
 *
 * @param until beginning of the URL at which the browser has arrived.
 */
export async function signInByBrowser(start: URL, until: string): Promise<URL> {
  const cookies = new Map<string, string>();
  let next: { readonly url: URL; readonly body?: URLSearchParams } = { url: start };
  for (let step = 0; step < 20; step++) {
    if (next.url.href.startsWith(until)) return next.url;
    const { url, body } = next;
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(body === undefined ? {} : { method: 'POST', body }),
    });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      cookies.set(name, value);
    }
    const location = response.headers.get('location');
    const page = await response.text();
    if (location !== null) {
      next = { url: new URL(location, url) };
      continue;
    }
    const [, action = ''] = /<form[^>]* action="([^"]+)"/.exec(page) ?? [];
    const [, prompt = ''] = /name="prompt" value="([^"]+)"/.exec(page) ?? [];
    if (action === '') throw new Error(`no form at ${url.href}: ${response.status} ${page.slice(0, 500)}`);
    next = { url: new URL(action, url), body: new URLSearchParams({ prompt, login: 'ann', password: 'x' }) };
  }
  throw new Error('the sign-in does not end');
}
