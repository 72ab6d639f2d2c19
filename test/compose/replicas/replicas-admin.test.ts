import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createAdminPort, sessionOf } from '../../../src/compose/admin/admin-port.ts';
import { LatestChanges } from '../../../src/compose/replicas/latest-changes.ts';
import { replicaAnswers } from '../../../src/compose/replicas/replica-answers.ts';
import { ReplicasAdmin } from '../../../src/compose/replicas/replicas-admin.ts';
import type { ReplicaAnswer } from '../../../src/replicas/operator-question.ts';
import type { Colleague } from '../../../src/replicas/replica-owners.ts';
import { createLogger } from '../../../src/telemetry/log.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { waitUntil } from '../../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

const FAILED = 'it failed to answer; its log has the reason';

/** A replica with the upstream `a`. The test adds its colleagues. */
async function openReplica(name: string) {
  const gateway = await testCore({ a: { memory: memoryUpstream({}) } });
  const { core } = gateway;
  const lines: string[] = [];
  const operations: string[] = [];
  const colleagues: Colleague[] = [];
  const log = createLogger('info', { write: (line) => void lines.push(line) });
  const own = createAdminPort({
    core,
    control: Object.create(null),
    stateDir: '',
    log,
    startedAtMs: 0,
    url: () => '',
    readiness: () => ({ ready: true, reasons: [] }),
    groupsOfKey: () => [],
    phase: { isStopping: false, isDraining: false },
  });
  const changes = new LatestChanges(core, log);
  const onLimit = (): void => undefined;
  const all = new ReplicasAdmin({ own, name, colleagues: async () => colleagues, changes, onLimit, log });
  const handle = replicaAnswers({
    own,
    changes,
    hasSession: (digest) => sessionOf(core, digest) !== undefined,
    onOperation: (_operator, operation) => void operations.push(operation),
  });
  return {
    gateway,
    core,
    all,
    port: all.port,
    colleagues,
    operations,
    warnings: () => lines.filter((line) => line.includes('"level":"warn"') || line.includes('"level":40')),
    /** This replica as others see it. */
    asColleague: {
      name,
      ask: async (_operator: string, operation: string, args: unknown): Promise<ReplicaAnswer> => {
        const value = await handle(operation, args)?.catch(() => FAILED);
        if (value === FAILED) return { why: FAILED };
        return { value: value === undefined ? undefined : JSON.parse(JSON.stringify(value)) };
      },
    },
    isDisabled: () => core.upstreamChanges.isDisabled('a'),
    [Symbol.asyncDispose]: async () => {
      all.close();
      await gateway[Symbol.asyncDispose]();
    },
  };
}

/** A replica that answers nothing but this reason, and counts the questions. */
function silentReplica(name: string, why: string) {
  const silent = {
    name,
    asked: 0,
    ask: async (): Promise<ReplicaAnswer> => {
      silent.asked++;
      return { why };
    },
  };
  return silent;
}

test('a replica that was silent is asked again for changes until it answers', OPTIONS, async () => {
  await using old = await openReplica('old');
  await using joined = await openReplica('joined');
  await old.port.disableUpstream('a', 0);
  const answers: Colleague['ask'][] = [silentReplica('old', 'it does not answer').ask, old.asColleague.ask];
  let asked = 0;
  const ask: Colleague['ask'] = (...question) => {
    const next = answers[Math.min(asked++, 1)] ?? old.asColleague.ask;
    return next(...question);
  };
  joined.colleagues.push({ name: 'old', ask }, silentReplica('newer', 'it has another version'));
  await joined.all.catchUp(0);
  assert.equal(joined.isDisabled(), false);
  assert.equal(joined.warnings().length, 1);
  assert.match(joined.warnings()[0] ?? '', /"replicas":\["old"\]/);
  await waitUntil(() => joined.isDisabled());
  assert.equal(joined.warnings().length, 1);
});

test('a silent replica is not asked again once it or the asking one has left', OPTIONS, async () => {
  await using joined = await openReplica('joined');
  const silent = silentReplica('silent', 'it does not answer');
  joined.colleagues.push(silent);
  await joined.all.catchUp(0);
  await waitUntil(() => silent.asked === 2);
  joined.colleagues.pop();
  await sleep(1_500); // subject
  assert.equal(silent.asked, 2);
  joined.colleagues.push(silent);
  await joined.all.catchUp(0);
  joined.all.close();
  await sleep(1_500); // subject
  assert.equal(silent.asked, 3);
});

test('a change taken over on joining again waits for calls in flight', OPTIONS, async (t) => {
  await using old = await openReplica('old');
  await using starting = await openReplica('starting');
  await using again = await openReplica('again');
  await old.port.disableUpstream('a', 0);
  const drains: number[] = [];
  for (const { core, colleagues } of [starting, again]) {
    colleagues.push(old.asColleague);
    t.mock.method(core.upstreamChanges, 'disable', async (_id: string, _reason: string, drainMs: number) => {
      drains.push(drainMs);
      return 0;
    });
  }
  await starting.all.catchUp(0);
  await again.all.catchUp();
  assert.deepEqual(drains, [0, 60_000]);
});

test('a replica that has restarted at its address is not named as missing', OPTIONS, async () => {
  await using asked = await openReplica('asked');
  await using other = await openReplica('other');
  const former = (name: string) => silentReplica(name, 'it has joined again at this moment');
  asked.colleagues.push(other.asColleague, former('other'), former('asked'));
  asked.colleagues.push(silentReplica('again', 'it is starting'), former('again'));
  assert.equal((await asked.port.disableUpstream('a', 0)).unconfirmed, undefined);
  asked.colleagues.push(former('elsewhere'));
  assert.deepEqual((await asked.port.disableUpstream('a', 0)).unconfirmed, ['elsewhere']);
});

test('a change that loses to a later one at another replica is not confirmed', OPTIONS, async (t) => {
  await using ahead = await openReplica('ahead');
  await using asked = await openReplica('asked');
  t.mock.timers.enable({ apis: ['Date'], now: 20_000 });
  await ahead.port.disableUpstream('a', 0);
  await ahead.port.setLogLevel('debug');
  asked.colleagues.push(ahead.asColleague);
  t.mock.timers.setTime(10_000);
  const restarted = await asked.port.restartUpstream('a', 0);
  assert.match(restarted.message, /not confirmed it: ahead \(a later change of an operator holds\)\.$/);
  assert.deepEqual(restarted.unconfirmed, ['ahead']);
  assert.equal(ahead.isDisabled(), true);
  assert.deepEqual(await asked.port.setLogLevel('warn'), ['ahead']);
  // The same change is confirmed.
  assert.equal((await asked.port.disableUpstream('a', 0)).unconfirmed, undefined);
  assert.deepEqual(await asked.port.setLogLevel('debug'), []);
  t.mock.timers.setTime(30_000);
  await ahead.port.restartUpstream('a', 0);
  t.mock.timers.setTime(10_000);
  assert.deepEqual((await asked.port.disableUpstream('a', 0)).unconfirmed, ['ahead']);
});

test('a session whose end fails at another replica may have ended', OPTIONS, async (t) => {
  await using asked = await openReplica('asked');
  await using other = await openReplica('other');
  asked.colleagues.push(other.asColleague, silentReplica('older', 'it has another version'));
  await other.gateway.connect();
  const [digest = ''] = [...other.core.sessions].map((session) => session.digest);
  t.mock.method(other.core.gateway, 'endSession', () => Promise.reject(new Error('the store fails')));
  const refusalOf = async (id: string) => {
    const ended = await Promise.allSettled([asked.port.endSession(id)]);
    return ended.map((one) => (one.status === 'rejected' ? [one.reason.code, one.reason.message] : [])).flat();
  };
  const [code, message] = await refusalOf(digest);
  assert.equal(code, 'internal-error');
  assert.match(message, /may have ended.*: other \(it failed/);
  assert.deepEqual(other.operations, ['endSession']);
  // A refusal ends nothing, and who lacks the session records nothing.
  assert.equal((await refusalOf('none'))[0], 'not-found');
  assert.deepEqual(other.operations, ['endSession']);
});
