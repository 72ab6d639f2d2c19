import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LatestChanges } from '../../../src/compose/replicas/latest-changes.ts';
import { createLogger, setLogLevel } from '../../../src/telemetry/log.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const OPTIONS = { timeout: 120_000 };

/** A replica with the upstreams `a` and `b`. */
async function openReplica() {
  const gateway = await testCore({ a: { memory: memoryUpstream({}) }, b: { memory: memoryUpstream({}) } });
  const log = createLogger('info', { write: () => undefined });
  const changes = new LatestChanges(gateway.core, log);
  const { upstreamChanges } = gateway.core;
  return {
    changes,
    log,
    isDisabled: (id: string) => upstreamChanges.isDisabled(id),
    disable: (id: string, at = changes.now()) => {
      if (changes.noteUpstream(id, at, true)) void upstreamChanges.disable(id, `disabled at ${at}`, 0);
      return at;
    },
    enable: (id: string, at = changes.now()) => {
      if (changes.noteUpstream(id, at, false)) void upstreamChanges.restart(id, 0);
      return at;
    },
    [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose](),
  };
}

test('a replica that joins takes over what is out of service, and why', OPTIONS, async () => {
  await using old = await openReplica();
  await using joined = await openReplica();
  const at = old.disable('a');
  joined.changes.apply([old.changes.record], 0);
  assert.deepEqual([joined.isDisabled('a'), joined.isDisabled('b')], [true, false]);
  assert.deepEqual(joined.changes.record.upstreams, [{ id: 'a', at, reason: `disabled at ${at}` }]);
});

test('of two changes that replicas know, the later one holds', OPTIONS, async () => {
  await using stale = await openReplica();
  await using current = await openReplica();
  await using joined = await openReplica();
  const at = stale.disable('a');
  current.disable('a', at);
  current.enable('a');
  const records = [stale.changes.record, current.changes.record];
  joined.changes.apply(records, 0);
  stale.changes.apply(records, 0);
  assert.deepEqual([joined.isDisabled('a'), stale.isDisabled('a')], [false, false]);
  // In the other order, and once more.
  current.changes.apply(records.toReversed(), 0);
  assert.equal(current.isDisabled('a'), false);
});

test('a change is later than all that its replica knows, whatever its clock says', OPTIONS, async () => {
  await using ahead = await openReplica();
  await using behind = await openReplica();
  const at = ahead.disable('a', Date.now() + 30_000);
  behind.disable('a', at);
  behind.enable('a');
  ahead.changes.apply([behind.changes.record], 0);
  assert.equal(ahead.isDisabled('a'), false);
});

test('a level that a reload has replaced is not passed on', OPTIONS, async () => {
  await using old = await openReplica();
  await using joined = await openReplica();
  old.changes.noteLogLevel('debug', old.changes.now());
  setLogLevel(old.log, 'debug');
  joined.changes.apply([old.changes.record], 0);
  assert.equal(joined.log.level, 'debug');
  setLogLevel(old.log, 'warn');
  assert.equal(old.changes.record.logLevel, undefined);
});

test('an upstream that another config has is left alone', OPTIONS, async () => {
  await using joined = await openReplica();
  joined.changes.apply([{ upstreams: [{ id: 'other', at: 1, reason: 'disabled' }] }], 0);
  assert.deepEqual(joined.changes.record.upstreams, []);
});

test('of two changes at the same time, the one that disables holds at both', OPTIONS, async () => {
  await using one = await openReplica();
  await using other = await openReplica();
  const at = Date.now();
  one.disable('a', at);
  other.enable('a', at);
  // Each hears of the change of the other one.
  one.enable('a', at);
  other.disable('a', at);
  assert.deepEqual([one.isDisabled('a'), other.isDisabled('a')], [true, true]);
  one.enable('b', at);
  other.disable('b', at);
  const records = [one.changes.record, other.changes.record];
  one.changes.apply(records, 0);
  other.changes.apply(records.toReversed(), 0);
  assert.deepEqual([one.isDisabled('b'), other.isDisabled('b')], [true, true]);
});

test('of two log levels at the same time, one holds at both replicas', OPTIONS, async () => {
  await using one = await openReplica();
  await using other = await openReplica();
  const at = Date.now();
  one.changes.noteLogLevel('debug', at);
  other.changes.noteLogLevel('warn', at);
  const held = [one.changes.noteLogLevel('warn', at), other.changes.noteLogLevel('debug', at)];
  assert.equal(held.filter((holds) => holds).length, 1);
});
