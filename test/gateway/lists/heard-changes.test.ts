import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { LOCAL } from '../../../src/policy/principal.ts';
import { META } from '../../../src/protocol/meta.ts';
import { stream } from '../../fixtures/servers/http-harness.ts';
import { TestClient, testCore } from '../../support/core.ts';
import { legacyUpstream, modernUpstream, type Served, type ServerScript } from '../../support/http-upstream.ts';
import { membersOf } from '../../support/members.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOLS_CHANGED = 'notifications/tools/list_changed';
const CAPABILITIES = { elicitation: {} };

const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });

/** A remote server of 2025-11-25 that reports changed tools on the streams of its sessions. */
async function reportingUpstream() {
  const streams: Served[] = [];
  const tools = [tool('old')];
  const capabilities = { tools: { listChanged: true } };
  const answers: ServerScript['answers'] = {
    initialize: ({ response }) => {
      response.setHeader('mcp-session-id', randomUUID());
      return { protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'scripted', version: '1' } };
    },
    '': (served) => {
      if (served.method !== 'GET') return {};
      stream(served.response);
      streams.push(served);
      return undefined;
    },
  };
  const upstream = await legacyUpstream({ tools, answers });
  const open = () => streams.filter(({ response }) => !response.closed);
  return {
    config: upstream.config,
    /** Resolves when a change can be reported, and only to sessions that stay open. */
    isHeard: () => waitUntil(() => open().length === 1),
    change: () => {
      tools.push(tool('new'));
      for (const served of open()) served.notify(TOOLS_CHANGED, {});
    },
    [Symbol.asyncDispose]: () => upstream[Symbol.asyncDispose](),
  };
}

test('a client with capabilities that has not sent server/discover hears of changes', TIMEOUT, async () => {
  await using upstream = await reportingUpstream();
  await using gateway = await testCore({ up: upstream.config });
  const client = new ModernClient(gateway, CAPABILITIES);
  const listen = client.request('subscriptions/listen', { notifications: { toolsListChanged: true } });
  await client.result('tools/list');
  await upstream.isHeard();
  upstream.change();
  await waitUntil(() => listen.messages.length > 1);
  listen.call.close();
  await listen.reply;
});

test('the only client, with capabilities, hears of the first change of a modern server', TIMEOUT, async () => {
  const tools = [tool('old')];
  await using upstream = await modernUpstream({ tools });
  await using gateway = await testCore({ up: upstream.config });
  const client = new ModernClient(gateway, CAPABILITIES);
  const listen = client.request('subscriptions/listen', { notifications: { toolsListChanged: true } });
  await client.result('tools/list');
  // For the client, and for all.
  await waitUntil(() => upstream.listens().length > 0 && upstream.requests('tools/list').length === 2);
  tools.push(tool('new'));
  upstream.notify(TOOLS_CHANGED);
  await waitUntil(async () => JSON.stringify(await client.result('tools/list')).includes('up__new'));
  listen.call.close();
  await listen.reply;
});

test('a reported change of items for clients with certain capabilities reaches them', TIMEOUT, async () => {
  const asking = [tool('old')];
  await using upstream = await modernUpstream({
    capabilities: { tools: { listChanged: true } },
    answers: {
      'tools/list': ({ meta }) => {
        const asks = membersOf(meta[META.clientCapabilities])['elicitation'] !== undefined;
        return { resultType: 'complete', tools: asks ? asking : [], ttlMs: 0, cacheScope: 'private' };
      },
    },
  });
  await using gateway = await testCore({ up: upstream.config });
  const client = new ModernClient(gateway, CAPABILITIES);
  const listen = client.request('subscriptions/listen', { notifications: { toolsListChanged: true } });
  await client.result('tools/list');
  await waitUntil(() => upstream.listens().length > 0 && upstream.requests('tools/list').length === 2);
  asking.push(tool('new'));
  upstream.notify(TOOLS_CHANGED);
  await waitUntil(() => listen.messages.length > 1);
  assert.match(JSON.stringify(await client.result('tools/list')), /up__new/);
  listen.call.close();
  await listen.reply;
});

test('a restored session with capabilities hears of changes before its first call', TIMEOUT, async () => {
  await using upstream = await reportingUpstream();
  await using gateway = await testCore({ up: upstream.config });
  const before = await gateway.connect({ capabilities: CAPABILITIES });
  await before.result('tools/list');
  await gateway.restart();
  const session = await gateway.core.gateway.findSession(before.session.id, LOCAL, '');
  assert.ok(session !== undefined);
  const client = new TestClient(() => gateway.core, session, before.initialized, true);
  await client.result('tools/list');
  await upstream.isHeard();
  upstream.change();
  await client.waitForMessage(TOOLS_CHANGED);
});
