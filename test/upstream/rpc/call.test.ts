import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { type CallOptions, PendingCall } from '../../../src/upstream/rpc/call.ts';

const OPTIONS: CallOptions<string> = { timeoutMs: 1_000, maxMs: 5_000, progress: false, context: 'alice' };
const ANSWER = { kind: 'result', result: '{}' } as const;

function callOf(options: Partial<CallOptions<string>> = {}) {
  const cancelled: (string | undefined)[] = [];
  const canceller = {
    cancel: (_call: unknown, reason: string | undefined) => void cancelled.push(reason),
    abandon: () => undefined,
  };
  return { cancelled, call: new PendingCall(canceller, 7, 'tools/call', { ...OPTIONS, ...options }) };
}

test('an outcome is delivered, whether or not it was awaited before', async () => {
  const { call: early } = callOf();
  const { answer } = early;
  early.settle(ANSWER);
  assert.deepEqual(await answer, ANSWER);
  const { call: late } = callOf();
  late.settle(new GatewayError('upstream-lost', { upstream: 'up' }));
  await assert.rejects(late.answer, { code: 'upstream-lost' });
});

test('onEnd runs before the answer settles, with the outcome', async () => {
  const order: string[] = [];
  const { call } = callOf({ onEnd: (outcome) => order.push(outcome instanceof GatewayError ? 'error' : outcome.kind) });
  const settled = call.answer.then(() => order.push('settled'));
  call.settle(ANSWER);
  await settled;
  assert.deepEqual(order, ['result', 'settled']);
});

test('a failure that nobody awaits is no unhandled rejection', async () => {
  const { call } = callOf();
  void call.answer;
  call.settle(new GatewayError('cancelled', { upstream: 'up' }));
  await new Promise((resolve) => setImmediate(resolve));
});

test('cancel passes the reason to the connection', () => {
  const { call, cancelled } = callOf();
  call.cancel('enough');
  assert.deepEqual(cancelled, ['enough']);
  assert.equal(call.context, 'alice');
});

// REL-04
test('activity moves the deadline up to the longest time of the call', () => {
  const { call } = callOf();
  /** Returns when the call times out after activity at this time; both in ms from the start. */
  const dueAfter = (activityMs: number): number => {
    call.lastActivityMs = call.startedMs + activityMs;
    return Math.round(call.dueMs - call.startedMs);
  };
  assert.deepEqual([0, 3_000, 4_500].map(dueAfter), [1_000, 4_000, 5_000]);
  assert.equal(callOf({ timeoutMs: Infinity }).call.dueMs, Infinity);
});
