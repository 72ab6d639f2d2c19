import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { RawObject } from '../../../src/json/json.ts';
import { ACKNOWLEDGE_MS } from '../../../src/gateway/modern/remote-listens.ts';
import { type TestCore, testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { type MemoryUpstream, memoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { LOCAL_CALLER, modernRequest, type ModernRequest } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const CHANGED = 'notifications/tools/list_changed';
const UPDATED = 'notifications/resources/updated';
const BOTH = { toolsListChanged: true, resourceSubscriptions: ['up+test://a', 'own+test://a'] };

/** An upstream with one tool and one resource, which answers subscriptions when the test says so. */
function held(): MemoryUpstream & { answer(): void } {
  const answers: (() => void)[] = [];
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true } },
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }], resources: [{ uri: 'test://a', name: 'a' }] },
    request: (peer, request) => {
      const answer = () => peer.send(result(request, { content: [] }));
      if (request.method === 'resources/subscribe') answers.push(answer);
      else answer();
    },
  });
  return Object.assign(memory, { answer: () => answers.splice(0).forEach((answer) => answer()) });
}

/** Two processes of one gateway. The second one has the connection to `up`, the first one that to `own`. */
async function twoProcesses() {
  const joined = new JoinedProcesses();
  const at = () => ({ up: held(), own: held() });
  const [here, there] = [at(), at()];
  const start = async ({ up, own }: typeof here): Promise<TestCore> => {
    const core = await testCore({ up: { memory: up }, own: { memory: own } }, {}, joined);
    await core.core.refresh();
    return core;
  };
  const [first, second] = [await start(here), await start(there)];
  await modernRequest(second, 'tools/call', toolCall('up__act')).reply;
  await modernRequest(first, 'tools/call', toolCall('own__act')).reply;
  return {
    first,
    listen: (notifications: object) => modernRequest(first, 'subscriptions/listen', { notifications }),
    remote: there.up,
    own: here.own,
    [Symbol.asyncDispose]: async () => {
      for (const core of [first, second]) await core[Symbol.asyncDispose]();
    },
  };
}

function change({ open }: { readonly open: Iterable<Peer> }, ...methods: string[]): void {
  const texts = methods.map((method) => JSON.stringify({ jsonrpc: '2.0', method, params: { uri: 'test://a' } }));
  for (const peer of open) for (const text of texts) peer.send(text);
}

function heard({ messages }: ModernRequest): readonly (string | undefined)[] {
  return messages.map((message) => ('method' in message ? message.method.split('/').at(-1) : undefined));
}

//
test('changes at another process before the acknowledgement are sent after it', TIMEOUT, async () => {
  await using processes = await twoProcesses();
  const { remote, own, listen } = processes;
  const stream = listen(BOTH);
  await remote.until(() => remote.requests('resources/subscribe')[0]);
  await own.until(() => own.requests('resources/subscribe')[0]);
  // A stream of its own shows when the changes have come.
  const other = listen({ toolsListChanged: true, resourceSubscriptions: ['up+test://a'] });
  remote.answer();
  await waitUntil(() => other.messages.length === 1);
  change(remote, UPDATED, UPDATED, CHANGED);
  await waitUntil(() => heard(other).includes('updated') && heard(other).includes('list_changed'));
  assert.deepEqual(heard(stream), []);
  own.answer();
  await waitUntil(() => stream.messages.length >= 3);
  assert.deepEqual([heard(stream).length, new Set(heard(stream))], [3, new Set(heard(other))]);
  assert.equal(heard(stream)[0], 'acknowledged');
});

//
test('no update comes of a resource that another process subscribes too late', TIMEOUT, async (t) => {
  await using processes = await twoProcesses();
  const { remote, own, listen } = processes;
  const time = stopTime(t);
  const stream = listen(BOTH);
  await remote.until(() => remote.requests('resources/subscribe')[0]);
  await own.until(() => own.requests('resources/subscribe')[0]);
  own.answer();
  time.pass(ACKNOWLEDGE_MS);
  await waitUntil(() => stream.messages.length === 1);
  remote.answer();
  const other = listen({ resourceSubscriptions: ['up+test://a'] });
  await waitUntil(() => other.messages.length === 1);
  change(remote, UPDATED);
  await waitUntil(() => other.messages.length === 2);
  assert.deepEqual(heard(stream), ['acknowledged']);
});

//
test('an update that exceeds a bound by its subscription id passes, and those after it', TIMEOUT, async () => {
  await using processes = await twoProcesses();
  const { remote, first } = processes;
  const params = RawObject.of({ notifications: { resourceSubscriptions: ['up+test://a'] } });
  const request = { kind: 'request', id: '1', method: 'subscriptions/listen', params } as const;
  const lengths: number[] = [];
  const send = (text: string) => lengths.push(text.length) > 0;
  const sink = { receivedMs: performance.now(), answer: () => undefined, send };
  first.core.gateway.handleModernRequest(request, LOCAL_CALLER, sink, undefined);
  await remote.until(() => remote.requests('resources/subscribe')[0]);
  remote.answer();
  await waitUntil(() => lengths.length === 1);
  const members = Array.from({ length: LIMITS.upstreamObjectMembers - 1 }, (_, n) => `"m${n}":1`).join();
  const large = `{"jsonrpc":"2.0","method":"${UPDATED}","params":{"uri":"test://a",${members}}}`;
  for (const peer of remote.open) peer.send(large);
  change(remote, UPDATED);
  await waitUntil(() => lengths.length === 3);
  assert.ok((lengths[1] ?? 0) > members.length);
});
