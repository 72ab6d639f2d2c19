import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { test } from 'node:test';
import { post } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';
import { signingKey, TestIssuer } from '../auth/issuer.ts';

const TIMEOUT = { timeout: 120_000 };
const PING = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });

test('operators see that issuers cannot be asked, and when they can again', TIMEOUT, async () => {
  const down = (_: unknown, response: ServerResponse) => void response.writeHead(503).end();
  await using keys = await TestIssuer.start(await signingKey('ES256', 'first'));
  keys.answer = down;
  let isAskable = false;
  const asked = createServer((request, response) => {
    if (!isAskable) return down(request, response);
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"active":false}');
  }).listen(0, '127.0.0.1');
  await once(asked, 'listening');
  const address = asked.address();
  assert.ok(typeof address === 'object' && address !== null);
  const publicUrl = 'https://gw.example.com';
  const introspection = {
    issuer: 'https://id.example.com',
    endpoint: `http://127.0.0.1:${address.port}/introspect`,
    clientId: 'gateway',
    clientSecret: 's3cret',
  };
  const jwt = { issuer: keys.issuer, jwksUrl: keys.jwksUrl };
  await using gateway = await startGateway({
    mcpServers: {},
    gateway: { publicUrl, auth: { jwt: [jwt], introspection: [introspection] } },
  });
  const token = await keys.token({ aud: `${publicUrl}/mcp` });
  const ask = async (credentials: string) =>
    (await post(gateway.endpoint(), PING, undefined, { authorization: `Bearer ${credentials}` })).status;
  const readyz = async () => await (await fetch(`${gateway.operatorUrl}/readyz`)).json();
  const countsUnreachable = async (count: number) =>
    assert.match(
      await (await fetch(`${gateway.operatorUrl}/metrics`)).text(),
      new RegExp(`^linkspan_unreachable_issuers ${count}$`, 'm'),
    );
  await countsUnreachable(0);
  assert.deepEqual([await ask(token), await ask('opaque')], [503, 503]);
  await countsUnreachable(2);
  assert.deepEqual(await readyz(), {
    ready: true,
    reasons: [
      `the keys of an issuer cannot be fetched from ${new URL(keys.jwksUrl).origin}/…; its tokens are refused`,
      'the issuer https://id.example.com cannot be asked; tokens that were not checked in the last minute are refused',
    ],
  });
  isAskable = true;
  keys.answer = undefined;
  await waitUntil(async () => (await ask(token)) !== 503 && (await ask('opaque')) === 401);
  await countsUnreachable(0);
  assert.deepEqual(await readyz(), { ready: true, reasons: [] });
  for (const message of ['JWKS can be fetched again', 'issuer can be asked about tokens again'])
    await gateway.waitForLog((line) => (line.includes(message) ? line : undefined));
  asked.closeAllConnections();
  asked.close();
});
