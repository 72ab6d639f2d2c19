import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../support/core.ts';
import { stream } from '../fixtures/servers/http-harness.ts';
import { legacyUpstream, modernUpstream, type Served } from '../support/http-upstream.ts';
import type { Members } from '../support/members.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'act', inputSchema: { type: 'object' } };
const FILE = { uri: 'file:///a', name: 'a' };
const UPDATED = 'notifications/resources/updated';

/** Starts a client with a stream at a server that keeps no events, so a message for a session without a stream is lost. */
async function begin() {
  const tools: Members[] = [TOOL];
  const streams: Served[] = [];
  const refused = new Set<unknown>();
  const listChanged = true;
  const capabilities = { tools: { listChanged }, resources: { subscribe: true, listChanged } };
  let begun = 0;
  const upstream = await legacyUpstream({
    tools,
    resources: [FILE],
    answers: {
      initialize: ({ response }) => {
        response.setHeader('mcp-session-id', `session-${++begun}`);
        return { protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'scripted', version: '1' } };
      },
      'resources/subscribe': () => ({}),
      'tools/call': () => ({ content: [] }),
      '': (served) => {
        if (served.method !== 'GET') return {};
        if (refused.delete(served.headers['mcp-session-id'])) served.response.writeHead(503).end();
        else streams.push(served);
        if (!served.response.headersSent) stream(served.response);
        return undefined;
      },
    },
  });
  const gateway = await testCore({ up: upstream.config });
  const client = await gateway.connect();
  await client.result('tools/list');
  await client.result('tools/call', { name: 'up__act', arguments: {} });
  await client.result('resources/subscribe', { uri: 'up+file:///a' });
  // That of the client, and the one that has read the lists.
  await waitUntil(() => streams.length === 2);
  return {
    tools,
    client,
    listings: () => upstream.requests('tools/list').length,
    updates: () => client.listened.filter((one) => 'method' in one && one.method === UPDATED).length,
    /** Breaks all streams. The server refuses the first attempt after that, if `isRefused`. Resolves when all are open again. */
    gap: async (isRefused: boolean, change?: () => void) => {
      const broken = streams.splice(0);
      change?.();
      for (const { headers, response } of broken) {
        if (isRefused) refused.add(headers['mcp-session-id']);
        response.destroy();
      }
      await waitUntil(() => streams.length === 2);
    },
    /** Reports an update on the open streams. */
    update: () => {
      for (const each of streams) each.notify(UPDATED, { uri: FILE.uri });
    },
    [Symbol.asyncDispose]: async () => {
      await gateway[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

// M-015
test('changes during a gap of a stream with a refusal reach clients', TIMEOUT, async () => {
  await using server = await begin();
  const { client } = server;
  await server.gap(true, () => server.tools.push({ ...TOOL, name: 'new' }));
  await client.waitForMessage(UPDATED);
  await client.waitForMessage('notifications/tools/list_changed');
  assert.match(JSON.stringify(await client.result('tools/list')), /up__new/);
});

test('a gap with a refusal is one listing of each connection, announced if it differs', TIMEOUT, async () => {
  await using server = await begin();
  const { client } = server;
  const before = server.listings();
  await server.gap(true);
  await client.waitForMessage(UPDATED);
  await waitUntil(() => server.listings() === before + 2);
  // Another one soon after is not looked at.
  await server.gap(true);
  server.update();
  await waitUntil(() => server.updates() === 2);
  assert.equal(server.listings(), before + 2);
  assert.deepEqual(new Set(client.listened.map((one) => 'method' in one && one.method)), new Set([UPDATED]));
});

test('a stream that is open again at once is no reason to look for changes', TIMEOUT, async () => {
  await using server = await begin();
  const before = server.listings();
  await server.gap(false);
  server.update();
  await server.client.waitForMessage(UPDATED);
  // A listing would have begun before these.
  for (let i = 0; i < 3; i++) await server.client.result('tools/call', { name: 'up__act', arguments: {} });
  assert.equal(server.listings(), before);
  assert.equal(server.client.listened.length, 1);
});

// M-015
test('after a gap at a modern upstream, only lists that differ are announced', TIMEOUT, async () => {
  const tools: Members[] = [TOOL];
  const answers = { 'tools/call': () => ({ content: [] }) };
  const listChanged = true;
  const capabilities = { tools: { listChanged }, resources: { listChanged } };
  await using upstream = await modernUpstream({ tools, resources: [FILE], capabilities, answers });
  await using gateway = await testCore({ up: upstream.config });
  const client = await gateway.connect();
  await client.result('tools/list');
  await client.result('tools/call', { name: 'up__act', arguments: {} });
  await waitUntil(() => upstream.listens().length === 1);
  tools.push({ ...TOOL, name: 'new' });
  // As by a proxy that closes idle streams.
  upstream.listens()[0]?.breakOff();
  await client.waitForMessage('notifications/tools/list_changed');
  await client.result('ping');
  assert.equal(client.listened.length, 1);
});
