import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { UpstreamConfig } from '../../../src/config/values/upstream-config.ts';
import { Sender, type SendOptions } from '../../../src/gateway/forward/sender.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream, result, type Script } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { collect } from '../../support/used-bytes.ts';

const TIMEOUT = { timeout: 120_000 };
const PARAMS = RawObject.of({ name: 'echo' });
const TIMEOUTS = {
  startMs: 60_000,
  connectMs: 60_000,
  firstByteMs: 60_000,
  callMs: 1_000,
  toolMs: 2_000,
  maxMs: 3_000,
};

/** A session with a link to an upstream of these answers. */
async function sending(request: NonNullable<Script['request']>, own: Partial<UpstreamConfig> = {}) {
  const memory = memoryUpstream({ request });
  const at = new GatewayParts({ up: { memory, ...own } });
  const { session } = at.session();
  const upstream = at.upstream('up');
  const link = await upstream.link(session, undefined, undefined);
  const sender = new Sender(at.metrics, at.stateLosses);
  /** The methods of the requests that the metrics count, with this label and their numbers. */
  const countedBy = async (label: string) => {
    const counts = /^mcp_client_operation_duration_seconds_count\{(.*)\} (\d+)$/gm;
    return [...(await at.metrics.text()).matchAll(counts)].map(([, labels = '', count]) => [
      /mcp_method_name="([^"]*)"/.exec(labels)?.[1],
      new RegExp(`${label}="([^"]*)"`).exec(labels)?.[1],
      Number(count),
    ]);
  };
  return {
    at,
    memory,
    session,
    begin: (sent: Partial<SendOptions> = {}, progressToken?: string) => {
      const { exchange } = at.exchange(session, session, progressToken === undefined ? {} : { progressToken });
      const call = sender.send(exchange, upstream, link, { params: PARAMS, ...sent });
      return { exchange, call };
    },
    counted: () => countedBy('error_type'),
    tools: () => countedBy('gen_ai_tool_name'),
  };
}

test('each request to an upstream is counted, by what its answer says', TIMEOUT, async () => {
  const answers: Record<string, object> = {
    done: { result: { content: [] } },
    failed: { result: { content: [], isError: true } },
    // The data of an upstream may look like that of the gateway.
    refused: { error: { code: -32_000, message: 'no', data: { code: 'overloaded' } } },
  };
  const { at, begin, counted, session } = await sending((peer, { id, params }) => {
    const name = params?.string('name') ?? '';
    if (name === 'crash') peer.crash();
    else peer.send(JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(id), ...answers[name] }));
  });
  await using _ = at;
  const outcomes: unknown[] = [];
  for (const name of ['done', 'failed', 'refused', 'crash']) {
    const { exchange, call } = begin({ params: RawObject.of({ name }) });
    const answer: Answer | 'none' = await call.answer.catch(() => 'none' as const);
    assert.ok(answer === 'none' || exchange.outcome?.answer === answer);
    outcomes.push(exchange.outcome?.error);
  }
  assert.deepEqual(outcomes, [undefined, 'tool_error', 'rpc_error', 'upstream-lost']);
  assert.deepEqual(
    await counted(),
    ['', 'tool_error', 'rpc_error', 'upstream-lost'].map((error) => ['tools/call', error, 1]),
  );
  assert.deepEqual(session.usedUpstreams, new Set(['up']), 'it may keep state for the session');
});

test('a request about the task of a call is counted as that, not as a call', TIMEOUT, async () => {
  const { at, begin, tools } = await sending((peer, request) => peer.send(result(request, { content: [] })));
  await using _ = at;
  for (const method of ['tools/call', 'tasks/get', 'tasks/get', 'tasks/result']) {
    const { exchange, call } = begin({ method });
    exchange.tool = 'up__echo';
    await call.answer;
  }
  assert.deepEqual(await tools(), [
    ['tools/call', 'up__echo', 1],
    ['tasks/get', '', 2],
    ['tasks/result', '', 1],
  ]);
});

test('an upstream that has not answered keeps no state for the session', TIMEOUT, async () => {
  const { at, begin, session } = await sending((peer) => peer.crash());
  await using _ = at;
  await assert.rejects(begin().call.answer, { code: 'upstream-lost' });
  assert.equal(session.usedUpstreams, undefined);
});

test('only the request of the client itself asks for its progress', TIMEOUT, async () => {
  const { at, begin, memory } = await sending((peer, request) => peer.send(result(request, {})));
  await using _ = at;
  for (const [method, token] of [
    [undefined, '1'],
    [undefined, undefined],
    ['tasks/get', '1'],
  ] as const) {
    await begin(method === undefined ? {} : { method }, token).call.answer;
  }
  const sent = [...memory.requests('tools/call'), ...memory.requests('tasks/get')];
  const asks = sent.map(({ params }) => params?.object('_meta')?.raw('progressToken') !== undefined);
  assert.deepEqual(asks, [true, false, false]);
});

test('a request fails after the silent time of its method, or one that is set', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { at, begin } = await sending(() => undefined, { timeouts: TIMEOUTS });
  await using _ = at;
  const ends: string[] = [];
  const [other, tool, set] = [{ method: 'tasks/get' }, {}, { silentMs: 5_000 }].map((sent, index) =>
    assert.rejects(begin(sent).call.answer, { code: 'upstream-timeout' }).then(() => ends.push(String(index))),
  );
  time.pass(TIMEOUTS.callMs);
  await other;
  assert.deepEqual(ends, ['0']);
  time.pass(TIMEOUTS.toolMs - TIMEOUTS.callMs);
  await tool;
  // Longer than the longest time for a call.
  time.pass(5_000 - TIMEOUTS.toolMs - 1);
  await new Promise(setImmediate);
  assert.deepEqual(ends, ['0', '1']);
  time.pass(1);
  await set;
  assert.deepEqual(ends, ['0', '1', '2']);
});

test('a cancellation of the exchange reaches its call, in the way that the call has', TIMEOUT, async () => {
  const { at, begin, memory } = await sending(() => undefined);
  await using _ = at;
  const plain = begin();
  plain.exchange.cancel('enough');
  await assert.rejects(plain.call.answer, { code: 'cancelled' });
  const reasons: unknown[] = [];
  const other = begin({
    asCancellable: (call) => ({ ...call, answer: call.answer, cancel: (why) => reasons.push(why) }),
  });
  other.exchange.cancel('enough');
  assert.deepEqual(reasons, ['enough']);
  const [peer] = memory.peers;
  const isCancelled = () => peer?.received.filter((one) => 'method' in one && one.method === 'notifications/cancelled');
  await memory.until(() => (isCancelled()?.length === 1 && memory.requests('tools/call').length === 2) || undefined);
});

test('an exchange that is kept after its answer, as that of a task, keeps no arguments', TIMEOUT, async () => {
  const { at, begin } = await sending((peer, request) => peer.send(result(request, { content: [] })));
  await using _ = at;
  let params: RawObject | undefined = RawObject.of({ name: 'echo', arguments: { text: 'x'.repeat(1_000) } });
  const kept = new WeakRef(params);
  const { exchange, call } = begin({ params });
  params = undefined;
  await call.answer;
  await nextTurn();
  collect();
  assert.deepEqual([exchange.wasSent, kept.deref()], [true, undefined]);
});
