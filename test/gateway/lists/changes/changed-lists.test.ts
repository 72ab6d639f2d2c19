import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { commonKey, EMPTY_OFFER } from '../../../../src/catalog/offer.ts';
import { GatewayError } from '../../../../src/errors.ts';
import type { ConnectionHolder } from '../../../../src/gateway/exchange/connection-holder.ts';
import { ChangedLists } from '../../../../src/gateway/lists/changes/changed-lists.ts';
import { ListAnnouncer } from '../../../../src/gateway/lists/changes/list-announcer.ts';
import { RawObject } from '../../../../src/json/json.ts';
import { NO_FEATURES } from '../../../../src/upstream/link/link.ts';
import { stream } from '../../../fixtures/servers/http-harness.ts';
import { testCore } from '../../../support/core.ts';
import { GatewayParts, type TestStream } from '../../../support/gateway-parts.ts';
import { legacyUpstream, type Served, type ServerScript } from '../../../support/http-upstream.ts';
import { memoryUpstream, type Peer, result } from '../../../support/memory-upstream.ts';
import { stopTime } from '../../../support/stopped-time.ts';
import { waitUntil } from '../../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOLS_CHANGED = 'notifications/tools/list_changed';
const PROMPTS_CHANGED = 'notifications/prompts/list_changed';

const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });

/** The changed lists of real upstreams. */
function listing(upstreams: ConstructorParameters<typeof GatewayParts>[0]) {
  const at = new GatewayParts(upstreams, {
    onLinkClosed: (link) => changed.onLinkClosed(link),
    onNotification: (link, { method }) => {
      if (method === TOOLS_CHANGED) changed.onReported(link, 'tools');
    },
  });
  const announcer = new ListAnnouncer(() => undefined);
  const changed: ChangedLists = new ChangedLists({
    upstreams: at.upstreams,
    holders: at.holders,
    offers: at.offers,
    log: at.log,
    siblingsOf: (holder) => at.holders.filter((other) => other !== holder && other.principal === holder.principal),
    announcer,
    onOtherCatalog: () => undefined,
    onCatalogOfUnresolved: () => undefined,
    onLimit: () => undefined,
  });
  /** Resolves with the list changes that a client got, after one of resources that the test announces to it. */
  const changesOf = async (holder: ConnectionHolder, stream: TestStream): Promise<readonly string[]> => {
    announcer.add(holder, ['resources']);
    const last = 'notifications/resources/list_changed';
    await stream.until(() => stream.notifications.find(([method]) => method === last));
    return stream.notifications.map(([method]) => method).filter((method) => method !== last);
  };
  return { at, changed, changesOf };
}

test('a change whose lists cannot be read is not announced with a later one', TIMEOUT, async () => {
  let isDown = true;
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, prompts: { listChanged: true } },
    hold: (peer, { id }) => {
      if (!isDown) return Promise.resolve();
      peer.fail(id, new GatewayError('upstream-timeout'));
      return new Promise(() => undefined);
    },
  });
  const { at, changed } = listing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  link.hasAnsweredCall = true;
  changed.onReported(link, 'tools');
  await memory.until(() => at.lines.find((line) => line.includes('changed lists not fetched')));
  isDown = false;
  changed.onReported(link, 'prompts');
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(stream.notifications, [[PROMPTS_CHANGED, null]]);
});

// N-63
test('a shared connection that always reports changes is listed with pauses', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let held: (() => void)[] = [];
  let isHeld = false;
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true } },
    hold: () => (isHeld ? new Promise<void>((resolve) => held.push(resolve)) : Promise.resolve()),
  });
  const { at, changed } = listing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  link.hasAnsweredCall = true;
  isHeld = true;
  const report = () => changed.onReported(link, 'tools');
  const lists = () => memory.requests('tools/list').length;
  const before = lists();
  report();
  await memory.until(() => held[0]);
  for (let n = 0; n < 100; n++) report();
  time.pass(400);
  isHeld = false;
  for (const release of held) release();
  held = [];
  await time.passUntil(
    stream.until(() => stream.messages[0]),
    1,
  );
  assert.equal(lists(), before + 1, 'the next listing waits as long as this one took');
  time.pass(400);
  await memory.until(() => lists() === before + 2 || undefined);
  time.pass(10_000);
  await at.upstream('up').relist('legacy', link, '');
  assert.equal(lists(), before + 3, 'only that of the test');
});

const ISOLATIONS = ['shared', 'session'] as const;

for (const isolation of ISOLATIONS) {
  // N-63
  test(`${isolation}: lists that always change are read once a second, equal ones less often`, TIMEOUT, async (t) => {
    const time = stopTime(t);
    let lists = 0;
    let isChanging = true;
    const memory = memoryUpstream({
      capabilities: { tools: { listChanged: true } },
      listsOf: () => ({ tools: [tool(isChanging ? `t${lists}` : 't')] }),
      hold: async (peer) => {
        lists++;
        setTimeout(() => peer.send(`{"jsonrpc":"2.0","method":"${TOOLS_CHANGED}"}`), 2);
      },
    });
    const { at, changed } = listing({ up: { memory, isolation } });
    await using _ = at;
    const link = await at.upstream('up').link(at.session().session);
    changed.onReported(link, 'tools');
    const listedIn = async (ms: number) => {
      const before = lists;
      for (let passed = 0; passed < ms; passed++) {
        time.pass(1);
        await nextTurn();
      }
      return lists - before;
    };
    await listedIn(4_000);
    const often = await listedIn(4_000);
    assert.ok(often >= 2 && often <= 5, `${often} listings in 4 s`);
    isChanging = false;
    await listedIn(60_000);
    const rarely = await listedIn(60_000);
    assert.ok(rarely >= 4 && rarely <= 7, `${rarely} listings in a minute, as the lists stay equal`);
    isChanging = true;
    await listedIn(40_000);
    assert.ok((await listedIn(4_000)) >= 2, 'once a second again after a change');
  });
}

// N-63
test('a server that reports a change at each opening is not opened without end', TIMEOUT, async () => {
  const memory = memoryUpstream({
    notification: (peer, { method }) => {
      if (method === 'notifications/initialized') peer.send(`{"jsonrpc":"2.0","method":"${TOOLS_CHANGED}"}`);
    },
  });
  const { at } = listing({ up: { memory } });
  await using _ = at;
  const upstream = at.upstream('up');
  await upstream.link(at.session().session);
  await memory.until(() => memory.requests('tools/list')[0]);
  const { session } = at.session({ capabilities: { elicitation: {} } });
  await upstream.refresh('legacy', session, '');
  await memory.until(() => memory.requests('tools/list')[2]);
  const counts = async () => {
    for (let turn = 0; turn < 200; turn++) await nextTurn();
    return { opened: memory.peers.length, open: memory.open.size, lists: memory.requests('tools/list').length };
  };
  assert.deepEqual(await counts(), { opened: 2, open: 2, lists: 3 }, 'it may report further changes');
  upstream.closeIdleLinks(performance.now() + 11_000);
  assert.deepEqual(await counts(), { opened: 2, open: 1, lists: 3 });
});

test('a server that reports a change with each equal list is left alone', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let tools = ['one'];
  let report = () => {};
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true } },
    listsOf: () => ({ tools: tools.map(tool) }),
    hold: async () => report(),
  });
  const { at, changed } = listing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const link = await at.upstream('up').link(at.session().session);
  report = () => changed.onReported(link, 'tools');
  const lists = () => memory.requests('tools/list').length;
  const passMinute = async () => {
    for (let passed = 0; passed < 600; passed++) {
      time.pass(100);
      await nextTurn();
    }
  };
  report();
  await passMinute();
  const before = lists();
  assert.ok(before >= 5 && before <= 7, `${before} listings`);
  await passMinute();
  assert.equal(lists(), before);
  tools = ['one', 'two'];
  report();
  await passMinute();
  assert.equal(at.offers.exactOffer('up', link)?.tools.length, 2);
});

test('a change reported during a listing is read, however many reports came before', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let tools = ['one'];
  let onListed = () => {};
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, prompts: { listChanged: true } },
    listsOf: () => ({ tools: tools.map(tool) }),
    hold: async (_peer, { method }) => {
      if (method !== 'prompts/list') return;
      await nextTurn();
      onListed();
    },
  });
  const { at, changed } = listing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const link = await at.upstream('up').link(at.session().session);
  const report = async (waitMs: number) => {
    changed.onReported(link, 'tools');
    for (let passed = 0; passed < 2; passed++) {
      for (let turn = 0; turn < 50; turn++) await nextTurn();
      time.pass(waitMs / 2);
    }
    for (let turn = 0; turn < 50; turn++) await nextTurn();
  };
  for (let times = 0; times < 7; times++) await report(times < 4 ? 1_500 : 3_600_000);
  onListed = () => {
    onListed = () => {};
    tools = ['one', 'two'];
    changed.onReported(link, 'tools');
  };
  await report(30_000);
  assert.equal(at.offers.exactOffer('up', link)?.tools.length, 2);
});

test('a server that registers tools after each start is not started again and again', TIMEOUT, async () => {
  const registered = new Set<Peer>();
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, prompts: { listChanged: true } },
    listsOf: (peer) => ({ tools: (registered.has(peer) ? ['first', 'late'] : ['first']).map(tool) }),
    hold: async (peer, { method }) => {
      if (method !== 'prompts/list' || registered.has(peer)) return;
      await nextTurn();
      registered.add(peer);
      peer.send(JSON.stringify({ jsonrpc: '2.0', method: TOOLS_CHANGED }));
    },
  });
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  await using gateway = await testCore({ up: { memory, target } });
  const client = await gateway.connect({ capabilities: { sampling: {} } });
  await client.result('tools/list');
  for (let turn = 0; turn < 1_000; turn++) await nextTurn();
  assert.ok(memory.starts <= 2, `${memory.starts} starts`);
  assert.partialDeepStrictEqual(await client.result('tools/list'), {
    tools: [{ name: 'up__first' }, { name: 'up__late' }],
  });
});

test('lists for capabilities that no client has any more are removed, others read', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [tool('a')] } });
  const { at, changed } = listing({ up: { memory } });
  await using _ = at;
  const { session } = at.session({ capabilities: { elicitation: {} } });
  const common = commonKey('legacy');
  await at.upstream('up').refresh('legacy', NO_FEATURES, '');
  const [own, gone] = [session.capabilityKey, 'gone'].map((capabilityKey) => ({ ...common, capabilityKey }));
  assert.ok(own !== undefined && gone !== undefined);
  for (const key of [own, gone]) at.offers.update('up', key, { ...EMPTY_OFFER, revision: '2025-11-25' });
  await changed.refreshVariants('up', common);
  assert.deepEqual(at.offers.keysOf('up', 'legacy'), [common, own]);
  assert.equal(at.offers.exactOffer('up', own)?.tools.length, 1);
  const asked = memory.peers.map(({ capabilities }) => capabilities.raw('elicitation') !== undefined);
  assert.deepEqual([asked, memory.requests('tools/list').length], [[false, true], 2]);
});

test('at an upstream of unknown era, lists are read for a client of their era', TIMEOUT, async () => {
  const memory = memoryUpstream({
    request: (peer, request) => {
      const hello = { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
      peer.send(result(request, request.method === 'server/discover' ? hello : {}));
    },
  });
  const { at, changed } = listing({ up: { memory, era: 'auto' } });
  await using _ = at;
  const { capabilityKey } = at.session({ capabilities: { elicitation: {} } }).session;
  assert.equal(at.group({ capabilities: { elicitation: {} } }).group.capabilityKey, capabilityKey);
  const common = commonKey('modern');
  at.offers.update('up', { ...common, capabilityKey }, { ...EMPTY_OFFER, revision: '2026-07-28' });
  await changed.refreshVariants('up', common);
  assert.deepEqual([memory.requests('server/discover').length, memory.requests('initialize').length], [1, 0]);
});

test('the first client without capabilities leaves the lists of other clients alone', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [tool('a')] } });
  await using gateway = await testCore({ up: { memory } });
  for (const capabilities of [{ elicitation: {} }, {}, { elicitation: {} }]) {
    const client = await gateway.connect({ capabilities });
    await client.result('tools/list');
    await gateway.core.gateway.endSession(client.session);
  }
  assert.equal(memory.requests('tools/list').length, 2);
});

test('a client hears only of lists that differ, and of none before it is ready', TIMEOUT, async () => {
  const { at, changed, changesOf } = listing({ up: { memory: memoryUpstream({}) } });
  await using _ = at;
  const [ready, early] = [at.session(), at.session()];
  early.session.isInitialized = false;
  at.offers.update('up', commonKey('legacy'), {
    ...EMPTY_OFFER,
    revision: '2025-11-25',
    tools: [RawObject.of(tool('a'))],
  });
  await changed.onListsChanged(['up']);
  for (const { session } of [ready, early]) assert.deepEqual([...session.catalog.tools.keys()], ['up__a']);
  early.session.isInitialized = true;
  assert.deepEqual(await changesOf(ready.session, ready.stream), [TOOLS_CHANGED]);
  assert.deepEqual(await changesOf(early.session, early.stream), []);
});

test('the users of a lost connection get the lists for all clients back', TIMEOUT, async () => {
  const memory = memoryUpstream({
    listsOf: (peer) => ({ tools: [tool(peer === memory.peers[0] ? 'own' : 'common')] }),
  });
  const { at, changed } = listing({ up: { memory } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  const names = () => [...session.catalog.tools.keys()];
  await at.upstream('up').refresh('legacy', session, '');
  changed.onReported(link, 'tools');
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(names(), ['up__own']);
  memory.peers[0]?.crash();
  assert.deepEqual(names(), ['up__common']);
});

test('a restored session hears of every list, as all may have changed meanwhile', TIMEOUT, async () => {
  const { at, changed } = listing({ up: { memory: memoryUpstream({}) } });
  await using _ = at;
  const [restored, other] = [at.session(), at.session()];
  changed.onRestored(restored.session);
  await restored.stream.until(() => restored.stream.messages[2]);
  const methods = restored.stream.notifications.map(([method]) => method);
  assert.deepEqual(new Set(methods), new Set([TOOLS_CHANGED, PROMPTS_CHANGED, 'notifications/resources/list_changed']));
  assert.deepEqual(other.stream.messages, []);
});

/** Two clients that can sample, whose lists at a remote upstream have changed and cannot be read at the first attempt. */
async function refusedOnce() {
  const streams: Served[] = [];
  const tools = [tool('old')];
  let refusals = 0;
  const capabilities = { tools: { listChanged: true } };
  const answers: ServerScript['answers'] = {
    initialize: ({ params, response }) => {
      if (refusals > 0 && JSON.stringify(params).includes('sampling')) {
        refusals--;
        response.writeHead(503).end();
        return undefined;
      }
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
  const gateway = await testCore({ up: upstream.config });
  const first = await gateway.connect({ capabilities: { sampling: {} } });
  const second = await gateway.connect({ capabilities: { sampling: {} } });
  await first.result('tools/list');
  await second.result('tools/list');
  const listed = () => upstream.requests('tools/list').length;
  await waitUntil(() => streams.some(({ response }) => !response.closed) && listed() === 2);
  tools.push(tool('new'));
  refusals = 1;
  for (const served of streams) if (!served.response.closed) served.notify(TOOLS_CHANGED, {});
  await waitUntil(() => refusals === 0);
  return {
    core: gateway.core,
    first,
    second,
    async [Symbol.asyncDispose]() {
      await gateway[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

for (const what of ['that is all', 'one client has ended', 'the upstream is replaced'] as const)
  test(`lists for capabilities are read again after a refusal: ${what}`, TIMEOUT, async () => {
    await using at = await refusedOnce();
    if (what === 'one client has ended') await at.core.gateway.endSession(at.first.session);
    if (what === 'the upstream is replaced') await at.core.upstreamChanges.restart('up', 0);
    await at.second.waitForMessage(TOOLS_CHANGED);
    assert.match(JSON.stringify(await at.second.result('tools/list')), /up__new/);
  });

test('old lists for capabilities that no client has any more are removed', TIMEOUT, async () => {
  await using at = await refusedOnce();
  const keys = () => [...at.core.offers.keys()].filter(([, { capabilityKey }]) => capabilityKey !== '');
  assert.equal(keys().length, 1);
  for (const { session } of [at.first, at.second]) await at.core.gateway.endSession(session);
  await waitUntil(() => keys().length === 0);
});
