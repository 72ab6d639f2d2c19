import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { KeyedCall, KeyedCallBounds, KeyedCallStore, OnKeyedCallLimit } from '../../src/store/keyed-call-store.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const LONG_MS = 600_000;

const BOUNDS: KeyedCallBounds = {
  keyedCallsPerPrincipal: 3,
  keyedCalls: 5,
  keyedOutcomeBytes: 1_000,
  // Redis counts encrypted text, which is longer.
  keyedOutcomesBytesPerPrincipal: 5_000,
  keyedOutcomesBytes: 9_000,
};

export type OpenKeyedCalls = (onLimit: OnKeyedCallLimit, bounds?: KeyedCallBounds) => Promise<KeyedCallStore>;

/** The contract of every store of keyed calls. Each opened store is empty. */
export function keyedCallStoreContract(name: string, open: OpenKeyedCalls): void {
  const openQuiet = () => open(() => undefined);
  const call = (principal = 'ann', named: string = randomUUID()): KeyedCall => ({ principal, name: named });

  /** Makes a call with an outcome of this length. */
  const make = async (store: KeyedCallStore, keyed: KeyedCall, chars = 1, keepMs = LONG_MS) => {
    const claim = `p/${randomUUID()}`;
    assert.deepEqual(await store.claim(keyed, claim, LONG_MS), { kind: 'claimed' });
    await store.end(keyed, claim, 'x'.repeat(chars), keepMs);
  };
  const outcomeOf = async (store: KeyedCallStore, keyed: KeyedCall) => {
    const known = await store.claim(keyed, 'p/other', LONG_MS);
    return known.kind === 'ended' ? (known.outcome ?? 'not kept') : known.kind;
  };

  test(`${name}: of many claims of a call one holds it, and its outcome is found`, OPTIONS, async () => {
    const store = await openQuiet();
    const keyed = call();
    const claims = Array.from({ length: 20 }, (_, n) => `p/${n}`);
    const answers = await Promise.all(claims.map((claim) => store.claim(keyed, claim, LONG_MS)));
    const holder = claims[answers.findIndex(({ kind }) => kind === 'claimed')] ?? '';
    assert.equal(answers.filter(({ kind }) => kind === 'claimed').length, 1);
    assert.equal(answers.filter((answer) => answer.kind === 'running' && answer.claim === holder).length, 19);
    assert.deepEqual(await store.claim(keyed, holder, LONG_MS), { kind: 'claimed' }, 'a repeated claim');
    await store.end(keyed, 'p/none', 'wrong', LONG_MS);
    await store.end(keyed, holder, '{"ü":"\ud800"}', LONG_MS);
    await store.end(keyed, holder, 'late', LONG_MS);
    await store.release(keyed, holder);
    assert.deepEqual(await store.claim(keyed, 'p/late', LONG_MS), { kind: 'ended', outcome: '{"ü":"\ud800"}' });
  });

  test(`${name}: calls of other principals and names are other calls`, OPTIONS, async () => {
    const store = await openQuiet();
    await make(store, call('ann', 'a'));
    for (const other of [call('bob', 'a'), call('ann', 'b')]) assert.equal(await outcomeOf(store, other), 'claimed');
  });

  test(`${name}: a released call can be claimed again, and only its holder can release it`, OPTIONS, async () => {
    const store = await openQuiet();
    const keyed = call();
    await store.claim(keyed, 'p/1', LONG_MS);
    await store.release(keyed, 'p/2');
    assert.deepEqual(await store.claim(keyed, 'p/2', LONG_MS), { kind: 'running', claim: 'p/1' });
    await store.release(keyed, 'p/1');
    assert.deepEqual(await store.claim(keyed, 'p/3', LONG_MS), { kind: 'claimed' });
  });

  test(`${name}: a call is forgotten when its time is over`, OPTIONS, async () => {
    const store = await openQuiet();
    const keyed = call();
    await store.claim(keyed, 'p/1', LONG_MS);
    await store.end(keyed, 'p/1', 'end', 20);
    await waitUntil(async () => (await outcomeOf(store, keyed)) === 'claimed');
  });

  test(`${name}: limit keyedCallsPerPrincipal: the principal's next call is refused`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit), BOUNDS);
    for (let n = 0; n < 3; n++) await make(store, call());
    const refused = { kind: 'full', limit: 'keyedCallsPerPrincipal' };
    assert.deepEqual(await store.claim(call(), 'p/1', LONG_MS), refused);
    assert.deepEqual(limits, ['keyedCallsPerPrincipal']);
    await make(store, call('bob'));
  });

  test(`${name}: calls that are kept for a shorter time than earlier ones make room`, OPTIONS, async () => {
    const store = await open(() => undefined, BOUNDS);
    const long = call();
    await make(store, long);
    for (let n = 0; n < 2; n++) await make(store, call(), 1, 20);
    for (let n = 0; n < 2; n++) {
      const keyed = call();
      await waitUntil(async () => (await store.claim(keyed, 'p/1', LONG_MS)).kind === 'claimed');
    }
    assert.equal(await outcomeOf(store, long), 'x');
  });

  test(`${name}: limit keyedCalls: the next call is refused until one is released`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit), BOUNDS);
    const running = call('bob');
    await store.claim(running, 'p/running', LONG_MS);
    for (const principal of ['ann', 'ann', 'bob', 'bob']) await make(store, call(principal));
    assert.deepEqual(await store.claim(call('eve'), 'p/1', LONG_MS), { kind: 'full', limit: 'keyedCalls' });
    assert.deepEqual(limits, ['keyedCalls']);
    await store.release(running, 'p/running');
    await make(store, call('eve'));
  });

  test(`${name}: limit keyedOutcomeBytes: a larger outcome is not kept`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit), BOUNDS);
    const [small, large] = [call(), call()];
    await make(store, small, 1_000);
    assert.deepEqual(limits, []);
    await make(store, large, 1_001);
    assert.deepEqual(limits, ['keyedOutcomeBytes']);
    assert.deepEqual([(await outcomeOf(store, small)).length, await outcomeOf(store, large)], [1_000, 'not kept']);
  });

  test(`${name}: limit keyedOutcomesBytesPerPrincipal: the oldest outcome goes`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit), {
      ...BOUNDS,
      keyedCallsPerPrincipal: 100,
      keyedCalls: 100,
    });
    const [bobs, first, second] = [call('bob'), call(), call()];
    for (const keyed of [bobs, first, second]) await make(store, keyed, 1_000);
    while (limits.length === 0) await make(store, call(), 1_000);
    assert.deepEqual(limits, ['keyedOutcomesBytesPerPrincipal']);
    assert.equal(await outcomeOf(store, first), 'not kept');
    for (const kept of [bobs, second]) assert.equal((await outcomeOf(store, kept)).length, 1_000);
  });

  test(`${name}: limit keyedOutcomesBytes: the oldest outcome of all goes`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit), {
      ...BOUNDS,
      keyedCallsPerPrincipal: 100,
      keyedCalls: 100,
    });
    const first = call('bob');
    await make(store, first, 1_000);
    for (let n = 0; limits.length === 0; n++) await make(store, call(`p${n}`), 1_000);
    assert.deepEqual(limits, ['keyedOutcomesBytes']);
    assert.equal(await outcomeOf(store, first), 'not kept');
  });
}
