import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { RawObject } from '../../src/json/json.ts';
import { getOrMake } from '../../src/map-entries.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { NO_FEATURES } from '../../src/upstream/link/link.ts';
import { json } from '../fixtures/servers/http-harness.ts';
import { testCore, toolCall } from '../support/core.ts';
import { errorText, modernUpstream, resultText } from '../support/http-upstream.ts';
import { memoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { ModernClient } from '../support/modern-client.ts';
import { SessionServer } from '../support/session-server.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const FORM = { elicitation: { form: {} } };

const principal = (key: string): Principal => ({ key, label: key, scopes: [] });

for (const isolation of ['session', 'principal', 'call'] as const) {
  // D6
  test(`isolation ${isolation}: first calls of principals share no remote session`, TIMEOUT, async () => {
    await using server = await SessionServer.start();
    const target = { kind: 'http', url: server.url, headers: {} } as const;
    await using gateway = await testCore({ up: { target, isolation, era: 'auto' } });
    const clients = ['ann', 'bob', 'eve'].map((key) => new ModernClient(gateway, {}, principal(key)));
    await clients[0]?.result('tools/list');
    // The lists are on the disk, and the era is not known any more.
    await gateway.restart();
    const replies = await Promise.all(
      clients.map((client) => client.request('tools/call', toolCall('up__count')).reply),
    );
    for (const { result: counted, error } of replies) {
      assert.deepEqual(counted?.['content'], [{ type: 'text', text: '1' }], JSON.stringify(error));
    }
  });
}

/** A server that describes itself twice as one of 2026-07-28, in two versions, and is then a legacy one with sessions. */
async function becomingLegacy(accepting: Promise<void> = Promise.resolve()) {
  const { promise: opening, resolve: onInitialize } = Promise.withResolvers<void>();
  const ofModern = (capabilities: object) => {
    const rest = { supportedVersions: ['2026-07-28'], ttlMs: 0, cacheScope: 'private' };
    return { resultType: 'complete', capabilities: { tools: { listChanged: true }, ...capabilities }, ...rest };
  };
  const hellos = [ofModern({}), ofModern({ prompts: {} })];
  const upstream = await modernUpstream({
    tools: [{ name: 'say', inputSchema: { type: 'object' } }],
    answers: {
      'server/discover': (served) => {
        const hello = hellos.shift();
        if (hello === undefined) served.error(-32601, 'Method not found');
        return hello;
      },
      initialize: ({ id, response }) => {
        const serverInfo = { name: 'scripted', version: '1' };
        const hello = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo };
        onInitialize();
        void accepting.then(() => {
          response.setHeader('mcp-session-id', randomUUID());
          json(response, resultText(id, hello));
        });
        return undefined;
      },
      'tools/call': ({ headers }) => ({ content: [{ type: 'text', text: String(headers['mcp-session-id']) }] }),
      'notifications/initialized': ({ response }) => void response.writeHead(202).end(),
      '': ({ response }) => void response.writeHead(405).end(),
    },
  });
  return { ...upstream, config: { ...upstream.config, era: 'auto' } as const, opening };
}

// D6
test('calls of principals share no session of a server that has become a legacy one', TIMEOUT, async () => {
  const accepted = Promise.withResolvers<void>();
  await using upstream = await becomingLegacy(accepted.promise);
  await using gateway = await testCore({ up: upstream.config });
  const clients = ['ann', 'bob', 'eve'].map((key) => new ModernClient(gateway, {}, principal(key)));
  for (const client of clients) await client.result('tools/list');
  await waitUntil(() => upstream.listens().length === 1);
  upstream.notify('notifications/tools/list_changed');
  await upstream.opening;
  const calls = clients.map((client) => client.request('tools/call', toolCall('up__say')).reply);
  // They wait for the connection that is being opened.
  for (let turn = 0; turn < 20; turn++) await nextTurn();
  accepted.resolve();
  const sessions = (await Promise.all(calls)).map(({ result: said, error }) =>
    JSON.stringify(said?.['content'] ?? error),
  );
  assert.equal(new Set(sessions).size, 3, sessions.join());
  for (const session of sessions) assert.match(session, /"text":"[-0-9a-f]{36}"/);
});

//
test('listings for other capabilities share no session of a new legacy server', TIMEOUT, async () => {
  await using upstream = await becomingLegacy();
  await using gateway = await testCore({ up: upstream.config });
  await new ModernClient(gateway).result('tools/list');
  const up = gateway.core.upstreams.get('up');
  assert.ok(up !== undefined);
  const forms = { clientCapabilities: RawObject.of(FORM), capabilityKey: 'forms' };
  await Promise.all([NO_FEATURES, forms].map((features) => up.refresh('modern', features, '')));
  const declared = upstream.requests('initialize').map(({ params }) => JSON.stringify(params['capabilities']));
  assert.deepEqual(new Set(declared), new Set(['{}', JSON.stringify(FORM)]));
});

//
test('a first request gets no process with the client features of another one', TIMEOUT, async () => {
  const declared: string[] = [];
  const memory = memoryUpstream({
    capabilities: { prompts: {} },
    lists: { prompts: [{ name: 'act', arguments: [{ name: 'declares' }] }] },
    request: (peer, request) => {
      const { declares } = Object(request.params?.value('arguments'));
      if (request.method === 'prompts/get') declared.push(`${declares} ${peer.capabilities.toString()}`);
      peer.send(result(request, { messages: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory, era: 'auto' } });
  const asked = [{}, FORM].map(async (capabilities) => {
    const prompt = { name: 'act', arguments: { declares: JSON.stringify(capabilities) } };
    return await new ModernClient(gateway, capabilities).request('prompts/get', prompt, { view: 'up' }).reply;
  });
  for (const { error } of await Promise.all(asked)) assert.equal(error, undefined);
  const form = JSON.stringify(FORM);
  assert.deepEqual(new Set(declared), new Set([`${form} ${form}`, '{} {}']));
});

/** A server of 2026-07-28 whose next connections are of 2025-11-25. Answers a call with the number of calls and the capabilities of its connection. */
function rolledBack() {
  const ofPeer = new Map<Peer, { calls: number; declared: string }>();
  let isModern = true;
  const capabilities = { tools: {} };
  const memory = memoryUpstream({
    isRaw: true,
    lists: { tools: [{ name: 'count', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      const { id, method, params } = request;
      const state = getOrMake(ofPeer, peer, () => ({ calls: 0, declared: '' }));
      if (method === 'tools/call') {
        const text = `${++state.calls} ${state.declared}`;
        peer.send(result(request, { resultType: 'complete', content: [{ type: 'text', text }] }));
      } else if (method === 'initialize') {
        state.declared = params?.raw('capabilities') ?? '';
        const serverInfo = { name: 'memory', version: '0' };
        peer.send(result(request, { protocolVersion: '2025-11-25', capabilities, serverInfo }));
      } else if (method === 'server/discover' && isModern) {
        peer.send(result(request, { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities }));
      } else {
        peer.send(errorText(Number(id), { code: -32_601, message: 'Method not found' }));
      }
    },
  });
  const rollBack = () => {
    isModern = false;
    for (const peer of memory.open) peer.crash();
  };
  return { memory, rollBack };
}

async function counts(clients: readonly ModernClient[]): Promise<unknown[]> {
  const replies = await Promise.all(clients.map((client) => client.request('tools/call', toolCall('up__count')).reply));
  return replies.map(({ result: counted, error }) => error ?? counted?.['content']);
}

for (const isolation of ['session', 'principal', 'call'] as const) {
  // D6
  test(`isolation ${isolation}: principals share no session of a server rolled back`, TIMEOUT, async () => {
    const { memory, rollBack } = rolledBack();
    const target = { kind: 'http', url: 'http://127.0.0.1:1/mcp', headers: {} } as const;
    await using gateway = await testCore({ up: { memory, target, isolation, era: 'auto' } });
    const clients = ['ann', 'bob', 'eve'].map((key) => new ModernClient(gateway, {}, principal(key)));
    for (const client of clients) await client.result('tools/call', toolCall('up__count'));
    rollBack();
    assert.deepEqual(
      await counts(clients),
      clients.map(() => [{ type: 'text', text: '1 {}' }]),
    );
  });
}

//
test('a process rolled back serves no client with the features of another one', TIMEOUT, async () => {
  const { memory, rollBack } = rolledBack();
  await using gateway = await testCore({ up: { memory, era: 'auto' } });
  const clients = [{}, FORM].map((capabilities) => new ModernClient(gateway, capabilities));
  for (const client of clients) await client.result('tools/call', toolCall('up__count'));
  rollBack();
  const own = [{}, FORM].map((declared) => [{ type: 'text', text: `1 ${JSON.stringify(declared)}` }]);
  assert.deepEqual(await counts(clients), own);
});
