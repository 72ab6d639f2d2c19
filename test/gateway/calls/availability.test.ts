import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { View } from '../../../src/catalog/view.ts';
import { noToolsNote, unavailableOwner } from '../../../src/gateway/calls/availability.ts';
import { RawObject } from '../../../src/json/json.ts';
import { CONFIGURED, type Lifecycle } from '../../../src/upstream/lifecycle/lifecycle.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
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

// N-06
test('instructions of an endpoint without tools name each upstream that is not up', () => {
  const note = noToolsNote(ALL, lifecycleOf, NOW_MS) ?? '';
  assert.match(note, /no tools at the moment: upstream "down" is down/);
  assert.doesNotMatch(note, /slow/);
  assert.match(note, /upstream "down" is down: command "x" was not found/);
  assert.doesNotMatch(note, /"up"/);
  assert.equal(noToolsNote(viewOf(['up', 'up__']), lifecycleOf, NOW_MS), undefined);
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
