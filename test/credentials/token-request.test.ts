import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { requestToken, TokenDeniedError, TokenRefusedError } from '../../src/credentials/token-request.ts';
import { EgressError } from '../../src/egress/egress-error.ts';
import { Egress } from '../../src/egress/egress.ts';
import { listenLocally } from '../support/local-port.ts';

const SECRET = 'the-secret-of-the-client';
const BASIC = Buffer.from(`linkspan:${SECRET}`).toString('base64');
const SUBJECT = 'the-token-of-the-user';

/** Returns the token, or the error, of a request for a token that is answered so. */
async function outcomeOf(status: number, answer: object, headers = {}): Promise<unknown> {
  const server = createServer((request, response) => {
    void text(request).then(() => {
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(answer));
    });
  });
  const port = await listenLocally(server);
  await using egress = new Egress();
  const issuer = `http://127.0.0.1:${port}`;
  const auth = {
    kind: 'exchange',
    clientId: 'linkspan',
    method: 'client_secret_basic',
    clientSecret: SECRET,
    scopes: [],
    stepUpScopes: [],
    parameters: {},
  } as const;
  const endpoint = { issuer, url: `${issuer}/token`, source: 'configured' } as const;
  const outcome: unknown = await requestToken(auth, endpoint, egress, SUBJECT).catch((refused: unknown) => refused);
  server.closeAllConnections();
  server.close();
  return outcome;
}

async function errorOf(status: number, answer: object, headers = {}): Promise<Error> {
  const thrown = await outcomeOf(status, answer, headers);
  assert.ok(thrown instanceof Error);
  return thrown;
}

for (const [name, repeated] of [
  ['client secret', SECRET],
  ['Basic credentials', BASIC],
  ['token of the user', SUBJECT],
] as const) {
  // SEC-13
  test(`an error that repeats the ${name} is reported without it`, async () => {
    for (const member of ['error', 'error_description']) {
      const thrown = await errorOf(400, { error: 'invalid_client', [member]: `no: ${repeated}` });
      assert.ok(member === 'error' ? thrown instanceof EgressError : thrown instanceof TokenRefusedError);
      assert.ok(!inspect(thrown, { depth: 9 }).includes(repeated), member);
    }
  });
}

const FINAL = `invalid_request invalid_client invalid_grant unauthorized_client unsupported_grant_type invalid_scope
  invalid_target interaction_required`.split(/\s+/);
const TRANSIENT = 'rate_limited access_denied too_many_requests temporarily_unavailable blocked'.split(' ');

// O-043
for (const [codes, what] of [
  [FINAL, 'is a refusal'],
  [TRANSIENT, 'may succeed later'],
] as const) {
  for (const code of codes) {
    test(`a request that is answered ${code} ${what}`, async () => {
      const thrown = await errorOf(400, { error: code });
      assert.equal(thrown instanceof TokenRefusedError, codes === FINAL);
      assert.match(thrown.message, new RegExp(`answered ${code} .HTTP 400`));
      assert.equal(thrown instanceof TokenDeniedError, codes !== FINAL);
      for (const status of [429, 503]) {
        const unanswered = await errorOf(status, { error: code });
        assert.ok(!(unanswered instanceof TokenRefusedError || unanswered instanceof TokenDeniedError), `${status}`);
      }
    });
  }
}

// O-043
test('a challenge is a refusal only with status 401', async () => {
  const challenge = { 'content-type': 'text/plain', 'www-authenticate': 'Basic realm="x"' };
  assert.ok((await errorOf(401, {}, challenge)) instanceof TokenRefusedError);
  assert.ok(!((await errorOf(403, {}, challenge)) instanceof TokenRefusedError));
});

// O-043
test('an answer without a token is a denial, unless its status is 429 or 5xx', async () => {
  for (const status of [200, 403, 404]) assert.ok((await errorOf(status, {})) instanceof TokenDeniedError, `${status}`);
  for (const status of [429, 502]) assert.ok(!((await errorOf(status, {})) instanceof TokenDeniedError), `${status}`);
});

test('a token that no header can carry is refused', async () => {
  const thrown = await errorOf(200, { access_token: 'a b', token_type: 'bearer' });
  assert.ok(thrown instanceof EgressError);
  assert.match(thrown.message, /no header can carry/);
});

test('a token that is bound to a key is refused', async () => {
  assert.ok((await errorOf(200, { access_token: 'x', token_type: 'DPoP' })) instanceof TokenDeniedError);
});

test('a token is used whatever else is in the answer', async () => {
  const answer = { access_token: 'x', token_type: 'Bearer', expires_in: 60, scope: 'read' };
  const issued = { accessToken: 'x', expiresInS: 60, scopes: ['read'] };
  for (const idToken of ['no.jwt', '', null]) {
    assert.deepEqual(await outcomeOf(200, { ...answer, id_token: idToken, refresh_token: idToken }), issued);
  }
  for (const none of ['', null]) {
    const outcome = await outcomeOf(200, { ...answer, error: none, token_type: none, expires_in: none });
    assert.deepEqual(outcome, { ...issued, expiresInS: undefined });
  }
  assert.deepEqual(await outcomeOf(200, { ...answer, scope: null }), { ...issued, scopes: undefined });
});

test('a token with a life of 0 s is used until the upstream refuses it', async () => {
  for (const life of [0, '0']) {
    const outcome = await outcomeOf(200, { access_token: 'x', expires_in: life });
    assert.deepEqual(outcome, { accessToken: 'x', expiresInS: undefined, scopes: undefined });
  }
});

test('a request for a token names its resource, scopes and further parameters', async () => {
  const sent = Promise.withResolvers<URLSearchParams>();
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      sent.resolve(new URLSearchParams(body));
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ access_token: 'x', token_type: 'Bearer', expires_in: 60 }));
    });
  });
  const issuer = `http://127.0.0.1:${await listenLocally(server)}`;
  await using egress = new Egress();
  const auth = {
    kind: 'exchange',
    clientId: 'linkspan',
    method: 'client_secret_post',
    clientSecret: SECRET,
    scopes: ['read', 'write'],
    stepUpScopes: [],
    resource: 'https://up.test/mcp',
    parameters: { audience: 'up' },
  } as const;
  const endpoint = { issuer, url: `${issuer}/token`, source: 'configured' } as const;
  const issued = await requestToken(auth, endpoint, egress, SUBJECT);
  server.closeAllConnections();
  server.close();
  assert.deepEqual(issued, { accessToken: 'x', expiresInS: 60, scopes: undefined });
  const type = 'urn:ietf:params:oauth:token-type:access_token';
  assert.deepEqual(Object.fromEntries(await sent.promise), {
    grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
    audience: 'up',
    scope: 'read write',
    resource: 'https://up.test/mcp',
    subject_token: SUBJECT,
    subject_token_type: type,
    requested_token_type: type,
    client_id: 'linkspan',
    client_secret: SECRET,
  });
});
