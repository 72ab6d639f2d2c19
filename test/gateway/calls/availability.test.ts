import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { View } from '../../../src/catalog/view.ts';
import { noToolsNote, possibleOwners, unavailableOwner } from '../../../src/gateway/calls/availability.ts';
import { RawObject } from '../../../src/json/json.ts';
import { CONFIGURED, type Lifecycle } from '../../../src/upstream/lifecycle/lifecycle.ts';
import { accessOf, ANYONE } from '../../policy/policies.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const OPEN = { includeTools: undefined, excludeTools: [] };
const NOW_MS = 100_000;

function viewOf(...upstreams: readonly (readonly [id: string, prefix: string])[]): View {
  return {
    ...OPEN,
    id: '',
    renames: {},
    upstreams: upstreams.map(([id, prefix]) => ({
      ...OPEN,
      id,
      title: id,
      prefix,
      rawUris: prefix === '',
      isRemote: false,
    })),
  };
}

const down = (reason: string, retryAtMs: number): Lifecycle => ({ ...CONFIGURED, phase: 'failed', reason, retryAtMs });
const STATES: Readonly<Record<string, Lifecycle>> = {
  up: { ...CONFIGURED, phase: 'ready' },
  slow: { ...CONFIGURED, phase: 'starting' },
  again: { ...CONFIGURED, phase: 'starting', reason: 'did not answer within 30 s' },
  mute: { ...CONFIGURED, phase: 'degraded', reason: 'tools/list failed: fetch failed (-32603)' },
  down: down('command "x" was not found', NOW_MS + 11_500),
  wrong: down('${TOKEN} is not set', Number.POSITIVE_INFINITY),
};
const lifecycleOf = (id: string) => STATES[id];
const ALL = viewOf(['up', 'up__'], ['slow', 'slow__'], ['down', 'down__'], ['wrong', 'wrong__']);

const CASES: readonly {
  readonly view?: View;
  readonly request: readonly [method: string, params: object];
  readonly says: RegExp | undefined;
}[] = [
  { request: ['tools/call', { name: 'up__x' }], says: undefined },
  { request: ['tools/call', { name: 'nobody__x' }], says: undefined },
  {
    request: ['tools/call', { name: 'slow__x' }],
    says: /tool "slow__x" belongs to upstream "slow", which is starting/,
  },
  {
    request: ['prompts/get', { name: 'down__x' }],
    says: /is down: command "x" was not found; it is tried again in 12 s/,
  },
  {
    request: ['resources/read', { uri: 'down+file:///a' }],
    says: /resource "down\+file:\/\/\/a" belongs to upstream "down"/,
  },
  { request: ['resources/read', { uri: 'file:///a' }], says: undefined },
  {
    request: ['tools/call', { name: 'wrong__x' }],
    says: /cannot be started: \$\{TOKEN\} is not set; an operator has to/,
  },
  { view: viewOf(['down', '']), request: ['tools/call', { name: 'x' }], says: /tool "x" belongs to upstream "down"/ },
  { view: viewOf(['down', ''], ['slow', '']), request: ['tools/call', { name: 'x' }], says: undefined },
];

for (const { view = ALL, request, says } of CASES) {
  const [method, params] = request;
  const outcome = says === undefined ? 'is unknown' : 'names the reason';
  // N-06
  test(`${method} ${JSON.stringify(params)} at ${view.upstreams.length} upstreams ${outcome}`, () => {
    const sent = { kind: 'request', id: '1', method, params: RawObject.of(params) } as const;
    const error = unavailableOwner(view, lifecycleOf, sent, NOW_MS);
    if (says === undefined) assert.equal(error, undefined);
    else assert.match(error?.message ?? '', says);
  });
}

const PLAIN = viewOf(['up', 'up__'], ['plain', ''], ['other', 'other__']);
const RENAMED = { ...PLAIN, renames: { other__search: 'up__find' } };

for (const { view, request, owners } of [
  { view: ALL, request: ['tools/call', { name: 'up__x' }], owners: ['up'] },
  { view: ALL, request: ['tools/call', { name: 'nobody__x' }], owners: [] },
  // Apps call tools without a prefix.
  { view: ALL, request: ['tools/call', { name: 'x' }], owners: ['up', 'slow', 'down', 'wrong'] },
  { view: PLAIN, request: ['prompts/get', { name: 'up__x' }], owners: ['up'] },
  { view: PLAIN, request: ['tools/call', { name: 'x' }], owners: ['plain'] },
  // Its upstream may have lost a part of its prefix.
  { view: PLAIN, request: ['tools/call', { name: 'oth_search_1a2b3c' }], owners: ['up', 'plain', 'other'] },
  { view: RENAMED, request: ['tools/call', { name: 'up__find' }], owners: ['up', 'other'] },
  { view: PLAIN, request: ['resources/read', { uri: 'up+file:///a' }], owners: ['up', 'plain'] },
  { view: PLAIN, request: ['resources/read', { uri: 'ui://other+card' }], owners: ['plain', 'other'] },
  { view: ALL, request: ['resources/read', { uri: 'https://a.example' }], owners: ['up', 'slow', 'down', 'wrong'] },
  { view: PLAIN, request: ['completion/complete', {}], owners: ['up', 'plain', 'other'] },
] as const) {
  const [method, params] = request;
  test(`${method} ${JSON.stringify(params)} may be of ${owners.join(', ') || 'no upstream'}`, () => {
    const sent = { kind: 'request', id: '1', method, params: RawObject.of(params) } as const;
    assert.deepEqual(possibleOwners(view, sent), owners);
  });
}

// N-06
test('instructions of an endpoint without tools name each upstream that is not up', () => {
  const note = noToolsNote(ALL, lifecycleOf, NOW_MS) ?? '';
  assert.match(note, /no tools at the moment: upstream "down" is down/);
  assert.doesNotMatch(note, /slow/);
  assert.match(note, /upstream "down" is down: command "x" was not found/);
  assert.doesNotMatch(note, /"up"/);
  assert.equal(noToolsNote(viewOf(['up', 'up__']), lifecycleOf, NOW_MS), undefined);
});

test('instructions name an upstream that starts again, and one whose lists fail', () => {
  const view = viewOf(['up', 'up__'], ['slow', 'slow__'], ['again', 'again__'], ['mute', 'mute__']);
  const again = 'upstream "again" is started again after a failure: did not answer within 30 s';
  const mute = 'upstream "mute" is degraded: tools/list failed: fetch failed (-32603)';
  const note = noToolsNote(view, lifecycleOf, NOW_MS);
  assert.equal(note, `This server has no tools at the moment: ${again}. ${mute}.`);
});

// N-06
suite('a call of a tool whose upstream does not start', () => {
  const broken = () =>
    memoryUpstream({
      start: () => Promise.reject(new Error('no such program')),
    });

  test('fails with the upstream’s reason in either era', TIMEOUT, async () => {
    await using gateway = await testCore({ gone: { memory: broken() } });
    const client = await gateway.connect();
    const { answer } = await client.request('tools/call', toolCall('gone__x', {}));
    const modern = await modernRequest(gateway, 'tools/call', toolCall('gone__x', {})).reply;
    for (const one of [answer.kind === 'error' ? answer.error : undefined, modern.error]) {
      assert.equal(one?.code, -31010);
      assert.match(one?.message ?? '', /tool "gone__x" belongs to upstream "gone", which is down/);
      assert.partialDeepStrictEqual(one?.data, { executed: 'no', retryable: true, upstream: 'gone' });
    }
  });
});

/** Longer than a test may take: a wait of this length fails it. */
const FOREVER_MS = 3_600_000;
const ACCESS = accessOf({ user: { tools: ['echo'], prompts: ['review'] } }, [{ ...ANYONE, roles: ['user'] }]);

// N-06
suite('a call before the first lists of an upstream that has answered initialize', () => {
  /** Answers its lists when they are released, or refuses them. */
  const unlisted = () => {
    const { promise: hold, resolve } = Promise.withResolvers<'answer' | 'refuse'>();
    const memory = memoryUpstream({
      capabilities: { tools: {}, prompts: {} },
      lists: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }], prompts: [{ name: 'review' }] },
      hold: async (peer, { id }) => {
        if ((await hold) === 'answer') return;
        peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32603,"message":"no lists"}}`);
      },
      request: (peer, request) => peer.send(result(request, { content: [], messages: [] })),
    });
    const isListing = () => memory.until(() => memory.requests('tools/list')[0]);
    return { memory, resolve, isListing };
  };
  const CALLS = [
    ['tools/call', 'up__echo'],
    ['prompts/get', 'up__review'],
  ] as const;
  const starting = (name: string) => new RegExp(`"${name}" belongs to upstream "up", which is starting; try again`);

  for (const access of [undefined, ACCESS]) {
    const policy = access === undefined ? 'without' : 'with';

    test(`can be tried again if they take too long, ${policy} access policy`, TIMEOUT, async () => {
      const { memory, resolve, isListing } = unlisted();
      await using gateway = await testCore({ up: { memory } }, { lists: { waitMs: 0 }, access });
      const client = await gateway.connect();
      const first = client.request('tools/list');
      await isListing();
      await first;
      for (const [method, name] of [...CALLS, ['tools/call', 'up__hidden'] as const]) {
        const { answer } = await client.request(method, { name });
        const modern = await modernRequest(gateway, method, { name }).reply;
        for (const error of [answer.kind === 'error' ? answer.error : undefined, modern.error]) {
          assert.match(error?.message ?? '', starting(name));
          assert.partialDeepStrictEqual(error?.data, { executed: 'no', retryable: true, upstream: 'up' });
        }
      }
      resolve('answer');
    });

    test(`waits for them as configured, ${policy} access policy`, TIMEOUT, async () => {
      const { memory, resolve, isListing } = unlisted();
      const lists = { waitMs: 0 };
      await using gateway = await testCore({ up: { memory } }, { lists, access });
      const client = await gateway.connect();
      const first = client.request('tools/list');
      await isListing();
      await first;
      lists.waitMs = FOREVER_MS;
      const legacy = CALLS.map(([method, name]) => client.request(method, { name }));
      const modern = CALLS.map(([method, name]) => modernRequest(gateway, method, { name }).reply);
      const unknown = client.request('tools/call', toolCall('up__hidden', {}));
      resolve('answer');
      for (const { answer } of await Promise.all(legacy)) assert.equal(answer.kind, 'result');
      for (const { error } of await Promise.all(modern)) assert.equal(error, undefined);
      const { answer } = await unknown;
      assert.equal(answer.kind === 'error' && answer.error.message, 'Unknown tool: up__hidden');
    });
  }

  test('names an unknown tool if they cannot be read', TIMEOUT, async () => {
    const { memory, resolve, isListing } = unlisted();
    const lists = { waitMs: 0 };
    await using gateway = await testCore({ up: { memory } }, { lists });
    const client = await gateway.connect();
    const first = client.request('tools/list');
    await isListing();
    await first;
    lists.waitMs = FOREVER_MS;
    const calling = client.request('tools/call', toolCall('up__echo', {}));
    resolve('refuse');
    const { answer } = await calling;
    assert.equal(answer.kind === 'error' && answer.error.message, 'Unknown tool: up__echo');
  });

  test('ends when its client cancels it', TIMEOUT, async () => {
    const { memory, isListing } = unlisted();
    const lists = { waitMs: 0 };
    await using gateway = await testCore({ up: { memory } }, { lists });
    const client = await gateway.connect();
    const first = client.request('tools/list');
    await isListing();
    await first;
    lists.waitMs = FOREVER_MS;
    const calling = client.send('tools/call', toolCall('up__echo', {}), { id: '"mine"' });
    client.notify('notifications/cancelled', { requestId: 'mine' });
    assert.equal((await calling).answer, undefined);
  });
});
