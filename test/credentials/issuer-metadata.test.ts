import assert from 'node:assert/strict';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { test } from 'node:test';
import { IssuerMetadata } from '../../src/credentials/issuer-metadata.ts';
import { TokenSource } from '../../src/credentials/token-source.ts';
import { EgressError } from '../../src/egress/egress-error.ts';
import { Egress } from '../../src/egress/egress.ts';
import { NeedsAuthorizationError } from '../../src/upstream/rpc/needs-authorization-error.ts';
import { startExchangeIssuer } from '../support/exchange-issuer.ts';
import { listenLocally } from '../support/local-port.ts';
import { waitUntil } from '../support/wait-until.ts';

const OAUTH = '/.well-known/oauth-authorization-server';
const REDIRECT = 'a redirect';
const OPENID = '/.well-known/openid-configuration';

/** Returns the token endpoint of an issuer whose documents are made from its URL, or the message of the failure. */
async function endpointAt(documents: (issuer: string) => Readonly<Record<string, unknown>>): Promise<string> {
  let answers: Readonly<Record<string, unknown>> = {};
  const server = createServer(({ url = '' }, response) => {
    const answer = answers[url];
    if (answer === undefined) return void response.writeHead(404).end();
    if (answer === REDIRECT) return void response.writeHead(302, { location: '/sign-in' }).end();
    response.writeHead(200).end(typeof answer === 'string' ? answer : JSON.stringify(answer));
  });
  const issuer = `http://127.0.0.1:${await listenLocally(server)}`;
  answers = documents(issuer);
  await using egress = new Egress();
  try {
    return (await new IssuerMetadata(issuer, egress).tokenEndpoint()).url.replace(issuer, '');
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message.replaceAll(issuer, '') : 'no error';
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

function closeNow(server: Server): void {
  server.close();
  server.closeAllConnections();
}

const PAGE = '<!doctype html><title>Sign in</title>';
const OTHER = { issuer: 'https://other.example.com', token_endpoint: 'https://other.example.com/token' };

for (const [what, first] of [
  ['a page', PAGE],
  ['a page that is too large', PAGE.padEnd(300_000)],
  ['a redirect', REDIRECT],
  ['metadata of another issuer', OTHER],
] as const) {
  test(`${what} at the first URL of the metadata leads to the next URL`, async () => {
    const url = await endpointAt((issuer) => ({
      [OAUTH]: first,
      [OPENID]: { issuer, token_endpoint: `${issuer}/token` },
    }));
    assert.equal(url, '/token');
  });
}

test('metadata without a token endpoint lead to the next URL', async () => {
  const url = await endpointAt((issuer) => ({
    [OAUTH]: { issuer },
    [OPENID]: { issuer, token_endpoint: `${issuer}/token` },
  }));
  assert.equal(url, '/token');
});

test('without usable metadata the first fault is reported', async () => {
  assert.match(
    await endpointAt(() => ({ [OAUTH]: PAGE, [OPENID]: OTHER })),
    /oauth-authorization-server cannot be read/,
  );
  assert.match(
    await endpointAt(() => ({ [OPENID]: OTHER })),
    /those of another issuer, https:\/\/other\.example\.com; auth\.issuer is/,
  );
  assert.match(
    await endpointAt(() => ({ [OAUTH]: REDIRECT })),
    /has no metadata \(HTTP 302, 404\); configure tokenUrl/,
  );
  assert.match(await endpointAt(() => ({})), /has no metadata \(HTTP 404\); configure tokenUrl/);
});

test('a token endpoint that metadata name at another private address gets nothing', async () => {
  await using issuer = await startExchangeIssuer();
  let requests = 0;
  const other = createServer((_request, response) => {
    requests++;
    response.writeHead(500).end();
  });
  const place = `http://127.0.0.1:${await listenLocally(other)}`;
  const server = createServer((_request, response) => {
    response.end(JSON.stringify({ issuer: named, token_endpoint: `${place}/token` }));
  });
  const named = `http://127.0.0.1:${await listenLocally(server)}`;
  await using egress = new Egress();
  const client = { clientId: 'g', method: 'client_secret_basic', clientSecret: 's', stepUpScopes: [] } as const;
  const sourceAt = (at: string) =>
    new TokenSource({ kind: 'clientCredentials', issuer: at, ...client, scopes: [], parameters: {} }, egress);
  try {
    await assert.rejects(sourceAt(named).acquire([]), EgressError);
    assert.equal(requests, 0);
    await assert.rejects(sourceAt(issuer.issuer).acquire([]), /invalid_client/);
  } finally {
    for (const each of [other, server]) closeNow(each);
  }
});

//
test('a token without a scope that was asked for besides is no credential', async () => {
  const server = createServer((_request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ access_token: 'x', token_type: 'Bearer', scope: 'read' }));
  });
  const tokenUrl = `http://127.0.0.1:${await listenLocally(server)}/token`;
  await using egress = new Egress();
  const client = { clientId: 'g', method: 'client_secret_basic', clientSecret: 's' } as const;
  const scopes = { scopes: [], stepUpScopes: ['read', 'write'] };
  const source = new TokenSource({ kind: 'clientCredentials', tokenUrl, ...client, ...scopes, parameters: {} }, egress);
  try {
    assert.deepEqual((await source.acquire(['read'])).credential.headers, ['authorization', 'Bearer x']);
    await assert.rejects(
      source.acquire(['read', 'write']),
      (thrown) => thrown instanceof NeedsAuthorizationError && thrown.isOfScopes && /"write"/.test(thrown.message),
    );
  } finally {
    closeNow(server);
  }
});

// O-045
test('an issuer with a slash too many is a mistake that an operator has to correct', async () => {
  const server = createServer((_request, response) => {
    response.writeHead(200).end(JSON.stringify({ issuer, token_endpoint: `${issuer}/token` }));
  });
  const issuer = `http://127.0.0.1:${await listenLocally(server)}`;
  await using egress = new Egress();
  try {
    const failed = await new IssuerMetadata(`${issuer}/`, egress).tokenEndpoint().catch((thrown: unknown) => thrown);
    assert.ok(failed instanceof NeedsAuthorizationError, String(failed));
    assert.equal(failed.actor, 'operator');
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

// O-040 O-045
test('metadata are read once for all, and stay in use while they cannot be read', async () => {
  let asked = 0;
  let status = 200;
  const server = createServer((_request, response) => {
    asked++;
    response.writeHead(status).end(JSON.stringify({ issuer, token_endpoint: `${issuer}/token` }));
  });
  const issuer = `http://127.0.0.1:${await listenLocally(server)}`;
  await using egress = new Egress();
  try {
    const metadata = new IssuerMetadata(issuer, egress);
    await Promise.all([metadata.tokenEndpoint(0), metadata.tokenEndpoint(0)]);
    assert.equal(asked, 1);
    status = 503;
    assert.equal((await metadata.tokenEndpoint(3_600_000)).url, `${issuer}/token`);
    await waitUntil(() => asked === 3);
    await metadata.tokenEndpoint(3_629_999);
    await waitUntil(async () => {
      assert.equal((await metadata.tokenEndpoint(3_630_000)).url, `${issuer}/token`);
      return asked === 5;
    });
    const unread = await new IssuerMetadata(issuer, egress).tokenEndpoint().catch((thrown: unknown) => thrown);
    assert.match(String(unread), /HTTP 503/);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

// O-045
test('only after hours without a read a known endpoint waits for the metadata', async () => {
  let hangs = false;
  let asked = 0;
  let path = '/token';
  const held: ServerResponse[] = [];
  const answer = (response: ServerResponse) =>
    response.writeHead(200).end(JSON.stringify({ issuer, token_endpoint: `${issuer}${path}` }));
  const server = createServer((_request, response) => {
    asked++;
    if (hangs) held.push(response);
    else answer(response);
  });
  const issuer = `http://127.0.0.1:${await listenLocally(server)}`;
  await using egress = new Egress();
  try {
    const metadata = new IssuerMetadata(issuer, egress);
    await metadata.tokenEndpoint(0);
    hangs = true;
    for (const nowMs of [3_600_000, 3_630_000]) {
      assert.equal((await metadata.tokenEndpoint(nowMs)).url, `${issuer}/token`);
    }
    await waitUntil(() => held.length === 1);
    assert.equal(asked, 2, 'one read at a time');
    path = '/moved';
    held.forEach(answer);
    await waitUntil(async () => (await metadata.tokenEndpoint(3_630_000)).url === `${issuer}/moved`);
    assert.equal(held.length, 1);
    hangs = false;
    path = '/moved-again';
    assert.equal((await metadata.tokenEndpoint(10_830_000)).url, `${issuer}/moved-again`, 'the known one is too old');
    hangs = true;
    assert.equal((await metadata.tokenEndpoint(18_030_000)).url, `${issuer}/moved-again`, 'the wait is bounded');
    assert.equal(held.length, 2, 'it is still being read');
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
