/** Tests that keys and introspection are asked for by the same rules as tokens: the proxy, and addresses that are never connected to. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:https';
import { test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { createAuthenticator } from '../../src/auth/authenticate.ts';
import { Jwks } from '../../src/auth/jwks.ts';
import { Egress } from '../../src/egress/egress.ts';
import { makeCertificate } from '../support/certificate.ts';
import { startConnectProxy } from '../support/connect-proxy.ts';
import { ENDPOINT, SILENT, signingKey } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const NAME = 'issuer.example';
const key = await signingKey('ES256', 'first');
const certificate = await makeCertificate(NAME);
setDefaultCACertificates([...getCACertificates('default'), certificate.cert]);

/** An issuer that serves its keys, and calls every token active. */
async function startIssuer() {
  const authorizations: (string | undefined)[] = [];
  const server = createServer({ cert: certificate.cert, key: certificate.key }, (request, response) => {
    authorizations.push(request.headers.authorization);
    const isJwks = request.url === '/jwks';
    const body = isJwks ? { keys: [key.jwk] } : { active: true, sub: 'ann', aud: ENDPOINT };
    request.resume();
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(address !== null && typeof address !== 'string');
  return {
    origin: `https://${NAME}:${address.port}`,
    authorizations,
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

test('keys and introspection go through the proxy of the config', OPTIONS, async () => {
  await using issuer = await startIssuer();
  await using proxy = await startConnectProxy();
  await using egress = new Egress({ proxy: `http://127.0.0.1:${proxy.port}`, noProxy: [], privateNetworks: [] });
  const jwks = new Jwks(`${issuer.origin}/jwks`, { log: SILENT, egress, clock: () => 0 });
  assert.equal((await jwks.find('ES256', 'first')).kind, 'keys');
  const entry = {
    issuer: issuer.origin,
    endpoint: `${issuer.origin}/introspect`,
    clientId: 'the-gateway_1',
    clientSecret: 'a-secret_with+signs',
    audiences: [],
    requiredScopes: [],
    tokenPrefix: '',
  };
  const authenticator = createAuthenticator({ jwt: [], apiKeys: [], introspection: [entry] }, { log: SILENT, egress });
  for (const token of ['one', 'two', 'three', 'four']) {
    const verdict = await authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
    assert.equal(verdict.kind, 'principal');
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
  // Many servers do not decode ids and secrets, so that only what has to be encoded is.
  const basic = `Basic ${Buffer.from('the-gateway_1:a-secret_with%2Bsigns').toString('base64')}`;
  assert.deepEqual(issuer.authorizations, [undefined, basic, basic, basic, basic]);
  const { host } = new URL(issuer.origin);
  for (const head of proxy.heads) assert.ok(head.startsWith(`CONNECT ${host} HTTP/1.1\r\n`), head);
  // undici opens another one for a request at the very end of the former.
  assert.ok(proxy.heads.length < 5, 'no token uses the connection of another');
});

// SEC-31
test('keys are not asked for at addresses of cloud metadata', OPTIONS, async () => {
  const warnings: unknown[] = [];
  const log = SILENT.child({});
  log.warn = (fields: unknown) => void warnings.push(fields);
  await using egress = new Egress();
  const jwks = new Jwks('https://169.254.169.254/jwks', { log, egress, clock: () => 0 });
  assert.equal((await jwks.find('ES256', 'first')).kind, 'unreachable');
  assert.match(String(Object(warnings[0])['err']), /an address of cloud metadata/);
});

test.after(() => certificate[Symbol.asyncDispose]());
