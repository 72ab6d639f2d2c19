import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Authenticator } from '../../../src/auth/authenticate.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { getEvents, initialize, post, rpc, send } from '../client.ts';
import { startEdge } from '../edge.ts';
import { HonestFront } from '../honest-front.ts';

const TIMEOUT = { timeout: 120_000 };
const METADATA = '/.well-known/oauth-protected-resource';
const ISSUER = {
  issuer: 'https://issuer.example',
  jwksUrl: 'https://issuer.example/keys',
  audiences: [],
  algorithms: ['ES256'],
  requiredScopes: [],
};

test('the metadata of an endpoint can only be read, also with a slash at the end', TIMEOUT, async () => {
  await using edge = await startEdge({ auth: { jwt: [ISSUER], apiKeys: [] } });
  const { status, headers } = await send(`${edge.url}${METADATA}/mcp`, { method: 'POST', body: '{}' });
  assert.deepEqual([status, headers.allow], [405, 'GET, HEAD']);
  for (const path of ['/mcp', '/mcp/up', '/sse', '/sse/up']) {
    for (const end of ['', '/']) {
      const metadata = await send(`${edge.url}${METADATA}${path}${end}`, {});
      assert.equal(metadata.status, 200, path + end);
      const { resource }: { resource: string } = JSON.parse(metadata.text);
      assert.equal(new URL(resource).pathname, path);
    }
  }
});

test('a failure behind the router is an error in words, without its cause', TIMEOUT, async () => {
  const front = new HonestFront();
  front.hasView = () => {
    throw new Error('the disk is on fire');
  };
  await using edge = await startEdge({}, undefined, front);
  const { status, text } = await send(`${edge.url}/sse`, { headers: { accept: 'text/event-stream' } });
  assert.equal(status, 500);
  assert.match(text, /"code":-32603/);
  assert.doesNotMatch(text, /fire/);
});

test('a failure on the fast path is an error in words, without its cause', TIMEOUT, async () => {
  const front = new HonestFront();
  await using edge = await startEdge({}, undefined, front);
  const url = `${edge.url}/mcp`;
  const session = await initialize(url);
  front.findSession = () => Promise.reject(new Error('the disk is on fire'));
  const { status, text } = await post(url, rpc(1, 'ping'), session);
  assert.equal(status, 500);
  assert.match(text, /"code":-32603/);
  assert.doesNotMatch(text, /fire/);
});

test('the credentials of a POST to /messages are those for the endpoint of its stream', TIMEOUT, async () => {
  const asked: string[][] = [];
  const authenticator: Authenticator = {
    authenticate: async (_headers, endpoint, _address, alsoFor = []) => {
      asked.push([new URL(endpoint).pathname, ...alsoFor.map((uri) => new URL(uri).pathname)]);
      return { kind: 'principal', principal: LOCAL };
    },
    known: () => undefined,
  };
  await using edge = await startEdge({}, authenticator);
  const events = await getEvents(`${edge.url}/sse/files`, undefined);
  await events.until(({ seen }) => seen.length > 0);
  const messages = new URL(events.seen[0]?.data ?? '', edge.url).href;
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'old', version: '1' } };
  assert.equal((await post(messages, rpc(0, 'initialize', params))).status, 202);
  const uris = ['/sse/files', '/mcp/files'];
  assert.deepEqual(asked, [uris, uris]);
  events.close();
});

// SEC-08
test('a POST with an older token does not shorten the life of a stream of 2024-11-05', TIMEOUT, async () => {
  const authenticator: Authenticator = {
    authenticate: async ({ authorization: [ends] }) => {
      return { kind: 'principal', principal: { key: 'ann', label: 'ann', scopes: [], expiresAtMs: Number(ends) } };
    },
    known: () => undefined,
  };
  await using edge = await startEdge({}, authenticator);
  const events = await getEvents(`${edge.url}/sse`, undefined, { authorization: '1000' });
  await events.until(({ seen }) => seen.length > 0);
  const messages = new URL(events.seen[0]?.data ?? '', edge.url).href;
  const ping = async (authorization: string) =>
    (await post(messages, rpc(1, 'ping'), undefined, { authorization })).status;
  for (const ends of ['3000', '2000']) assert.equal(await ping(ends), 202);
  edge.endStreams(({ expiresAtMs = 0 }) => expiresAtMs <= 2_000);
  assert.equal(await ping('3000'), 202);
  edge.endStreams(({ expiresAtMs = 0 }) => expiresAtMs <= 3_000);
  await events.ended();
});
