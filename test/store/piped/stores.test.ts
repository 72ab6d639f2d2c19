import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { MemoryOutcomeStore } from '../../../src/store/memory/outcome-store.ts';
import { STORES } from '../../../src/store/piped/methods.ts';
import { LocalSessionStore } from '../../../src/store/sessions/local-session-store.ts';
import type { TaskStore } from '../../../src/store/task-store.ts';
import type { PipeCalls } from '../../../src/store/piped/pipe-calls.ts';
import { pipedOfferStore } from '../../../src/store/piped/offer-store.ts';
import { pipedPlacementTable } from '../../../src/store/piped/placement-table.ts';
import { pipedSessionStore } from '../../../src/store/piped/session-store.ts';
import { remoteStore } from '../../../src/store/piped/remote-store.ts';
import { sharedTaskStore } from '../../../src/store/memory/shared-task-store.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { counterTableContract } from '../counter-table.contract.ts';
import { fencedSessionsContract, SessionProcess } from '../fenced-sessions.contract.ts';
import { keyedCallStoreContract } from '../keyed-call-store.contract.ts';
import { keyStoreContract } from '../key-store.contract.ts';
import { MemoryOfferStore } from '../memory/memory-offer-store.ts';
import { offerStoreContract } from '../offer-store.contract.ts';
import { outcomeStoreContract } from '../outcome-store.contract.ts';
import { placementTableContract } from '../placement-table.contract.ts';
import { rateTableContract } from '../rate-table.contract.ts';
import { sessionStoreContract } from '../session-store.contract.ts';
import { MemoryTaskStore } from '../../../src/store/memory/task-store.ts';
import { taskStoreContract } from '../task-store.contract.ts';
import { pipePair, testParent } from './pipe-pair.ts';

const OPTIONS = { timeout: 120_000 };
const LONG_MS = 60_000;
const disposable = { [Symbol.asyncDispose]: async () => undefined };

keyStoreContract('piped', async () => ({ ...remoteStore(testParent().worker(), STORES.keys), ...disposable }));
offerStoreContract('piped', async () => Object.assign(pipedOfferStore(testParent().worker()), disposable));
taskStoreContract('piped', (onLimit) => {
  return openTasks(testParent({}, LONG_MS, { tasks: new MemoryTaskStore(onLimit) }).worker());
});
rateTableContract('piped', async () => remoteStore(testParent().worker(), STORES.rates));
counterTableContract('piped', async (leaseMs) => ({
  ...remoteStore(testParent({}, leaseMs).worker(), STORES.counters),
  leaseMs,
}));
placementTableContract('piped', async (leaseMs, count) => {
  const parent = testParent({}, leaseMs);
  return Array.from({ length: count }, () => pipedPlacementTable(parent.worker(), leaseMs));
});
outcomeStoreContract('piped', async (onLimit) =>
  remoteStore(testParent({ outcomes: new MemoryOutcomeStore(onLimit) }).worker(), STORES.outcomes),
);
keyedCallStoreContract('piped', async (onLimit, bounds) =>
  remoteStore(
    testParent({}, LONG_MS, { keyedCalls: new MemoryKeyedCallStore(onLimit, bounds) }).worker(),
    STORES.keyedCalls,
  ),
);
function openTasks(worker: PipeCalls): TaskStore {
  return sharedTaskStore(remoteStore(worker, STORES.tasks), () => undefined);
}

/** Returns a worker with the session store of the parent. */
function openSessions(worker: PipeCalls): SessionProcess {
  const table = pipedPlacementTable(worker, LONG_MS);
  return new SessionProcess(table, (fencing) => pipedSessionStore({ calls: worker, ...fencing }));
}

sessionStoreContract('piped', async () => openSessions(testParent().worker()).claiming());
fencedSessionsContract('piped', async () => {
  const parent = testParent();
  return [openSessions(parent.worker()), openSessions(parent.worker())];
});

test('a worker that has gone is no member, and others get what it had', OPTIONS, async () => {
  const parent = testParent();
  const [first, second] = [parent.worker(), parent.worker()];
  const [one, two] = [pipedPlacementTable(first, LONG_MS), pipedPlacementTable(second, LONG_MS)];
  const [a, b] = ['a', 'b'].map((id) => ({ id, process: id, address: '', version: '1' }));
  assert.ok(a !== undefined && b !== undefined);
  await one.join(a);
  await two.join(b);
  const key = { principal: 'ann', name: 's.1' };
  await one.claim(key, 'a', undefined);
  assert.equal((await two.claim(key, 'b', undefined)).member, 'a');
  parent.end(first);
  await waitUntil(async () => (await two.members()).length === 1);
  assert.equal((await two.claim(key, 'b', undefined)).member, 'b');
});

test('a worker learns of lists that another one has written, and not of its own', OPTIONS, async () => {
  const parent = testParent();
  const [one, two] = [pipedOfferStore(parent.worker()), pipedOfferStore(parent.worker())];
  const notified: string[] = [];
  for (const [name, store] of Object.entries({ one, two })) {
    await store.watch?.({
      onWritten: ({ upstream }) => notified.push(`${name} ${upstream}`),
      onMissed: () => undefined,
    });
  }
  const key = { upstream: 'files', target: '', era: '', capabilityKey: '', audience: '' };
  await one.write(key, 'text');
  await two.write({ ...key, upstream: 'mail' }, 'text');
  await waitUntil(() => notified.length === 2);
  assert.deepEqual(notified.toSorted(), ['one mail', 'two files']);
});

test('a worker knows why the state cannot be written, also one that starts then', OPTIONS, async () => {
  let failure: string | undefined;
  const sessions = Object.defineProperty(new LocalSessionStore(() => undefined), 'failure', { get: () => failure });
  const parent = testParent({}, LONG_MS, { sessions });
  const { store } = openSessions(parent.worker());
  failure = 'the disk is full';
  parent.server.notifyStateFailure();
  await waitUntil(() => store.failure === 'the disk is full');
  const { store: later } = openSessions(parent.worker());
  await waitUntil(() => later.failure === 'the disk is full');
  failure = undefined;
  parent.server.notifyStateFailure();
  await waitUntil(() => store.failure === undefined && later.failure === undefined);
});

test('calls of a worker whose parent has gone fail at once as store-unavailable', OPTIONS, async () => {
  const parent = testParent();
  const worker = parent.worker();
  const keys = remoteStore(worker, STORES.keys);
  await keys.read();
  parent.end(worker);
  await waitUntil(async () => {
    const failed = await keys.read().then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    return failed instanceof GatewayError && failed.code === 'store-unavailable';
  });
});

// REL-01
test('a task that the parent cannot keep in time is no failure, and listed here', OPTIONS, async () => {
  const { one, other, close } = pipePair(() => undefined, 10); // subject
  const store = openTasks(one);
  const known = { upstream: 'up', task: 't', holder: 'h', run: '', id: 'id' };
  other.serve(STORES.tasks.add, () => new Promise(() => undefined));
  other.serve(STORES.tasks.list, () => new Promise(() => undefined));
  await store.add('ann', known);
  assert.deepEqual(await store.list('ann'), [known]);
  assert.deepEqual(store.find('ann', known), known);
  close();
  await store.remove('ann', known);
  assert.deepEqual(await store.list('ann'), []);
});

test('lists that the parent cannot read are none', OPTIONS, async () => {
  const offers = new MemoryOfferStore();
  offers.read = () => Promise.reject(new Error('broken'));
  const store = pipedOfferStore(testParent({}, LONG_MS, { offers }).worker());
  const key = { upstream: 'up', target: 't', era: '', capabilityKey: '', audience: '' };
  assert.equal(await store.read(key), undefined);
});
