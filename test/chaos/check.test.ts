import assert from 'node:assert/strict';
import { test } from 'node:test';
import { check, DEADLINE_MS, type Rule } from './check.ts';
import type { Attempt, End, History, LedgerEntry, Trial } from './history.ts';
import { planChaos, type PlannedCall } from './plan.ts';

/** A plan without faults of Redis. */
const PLAN = { ...planChaos(7), faults: [] };

/** Changes what a situation has, or returns other parts of the trial. */
type Change = (situation: Situation) => Partial<Trial> | void;

/** Returns the execution of a call. */
function runOf({ id, nonce, upstream }: PlannedCall, own: Partial<LedgerEntry> = {}): LedgerEntry {
  return { upstream, call: id, attempt: 1, nonce, run: `run-${id}`, state: 'one', atMs: 10, ...own };
}

function attemptAt(call: PlannedCall, ends: readonly End[], own: Partial<Attempt> = {}): Attempt {
  const progress = Array.from({ length: call.steps }, (_, step) => step + 1);
  return { call, number: 1, sentMs: 0, ends: [...ends], progress, notes: [], resumed: 0, session: 's', ...own };
}

function okOf({ id, nonce }: PlannedCall, own: object = {}): End {
  return { kind: 'ok', nonce, run: `run-${id}`, lost: undefined, atMs: 50, ...own };
}

/** Returns a trial in which everything is right. */
function rightTrial(): Trial {
  const calls = PLAN.clients.flatMap((client) => client.calls);
  const histories = PLAN.clients.map(({ name, calls: own }): History => ({
    client: name,
    attempts: own.map((call) => attemptAt(call, [okOf(call)])),
    seen: new Set(own.map(({ nonce }) => nonce)),
  }));
  return {
    plan: PLAN,
    histories,
    ledger: calls.map((call) => runOf(call)),
    recoveries: [],
    defects: [],
    longestChildMs: 0,
  };
}

interface Situation {
  readonly trial: Trial;
  readonly history: History;
  readonly call: PlannedCall;
  readonly ledger: LedgerEntry[];
  /** Replaces the attempts of the call. */
  readonly replace: (...attempts: readonly Attempt[]) => void;
}

function refused(claim: 'no' | 'yes' | 'unknown', atMs = 50): End {
  return { kind: 'error', claim, code: 'store-unavailable', text: 'Shared state unavailable', atMs };
}

/** Applies a change to a right trial. */
function changed(change: Change): Trial {
  const trial = rightTrial();
  const [history] = trial.histories;
  const attempt = history?.attempts.find(({ call }) => call.steps > 2);
  assert.ok(history !== undefined && attempt !== undefined);
  const ledger = [...trial.ledger];
  const { call } = attempt;
  const replace = (...attempts: readonly Attempt[]) =>
    void history.attempts.splice(history.attempts.indexOf(attempt), 1, ...attempts);
  return { ...trial, ledger, ...change({ trial, history, call, ledger, replace }) };
}

function removeRun(ledger: LedgerEntry[], { id }: PlannedCall): void {
  ledger.splice(
    ledger.findIndex(({ call }) => call === id),
    1,
  );
}

test('a trial in which everything is right has no violation', () => {
  assert.deepEqual(check(rightTrial()), []);
});

const RIGHT: Readonly<Record<string, Change>> = {
  'a call that was refused and then sent again': ({ call, ledger, replace }) => {
    removeRun(ledger, call);
    ledger.push(runOf(call, { attempt: 2 }));
    replace(attemptAt(call, [refused('no')], { progress: [] }), attemptAt(call, [okOf(call)], { number: 2 }));
  },
  'a call of unknown outcome that ran': ({ call, replace }) => {
    replace(attemptAt(call, [refused('unknown')], { progress: [1] }));
  },
  'a call of unknown outcome that did not run': ({ call, ledger, replace }) => {
    removeRun(ledger, call);
    replace(attemptAt(call, [refused('unknown')], { progress: [] }));
  },
  'a connection that was closed after some progress': ({ call, replace }) => {
    replace(attemptAt(call, [{ kind: 'closed', why: 'reset', atMs: 50 }], { progress: [1, 2] }));
  },
  'a state that was lost and reported': (situation) =>
    void moveState(situation, ({ call }) => ({ lost: call.upstream })),
  'a state that was lost, with an answer that may have reported it': (situation) => {
    const calls = moveState(situation, () => ({}));
    const [first] = calls;
    if (first !== undefined) first.ends[0] = { kind: 'closed', why: 'reset', atMs: 50 };
  },
  'a state that was lost, and reported after Redis was cut off': (situation) => {
    const { trial, ledger } = situation;
    const last = moveState(situation, () => ({})).at(-1);
    assert.ok(last !== undefined);
    last.ends[0] = okOf(last.call, { lost: last.call.upstream });
    const found = ledger.findIndex(({ call }) => call === last.call.id);
    ledger[found] = runOf(last.call, { state: 'two', atMs: 200 });
    return { plan: { ...trial.plan, faults: [{ kind: 'stop Redis', atMs: 100, untilMs: 300 }] } };
  },
  'a state that an answer of its own reported as lost': (situation) => {
    moveState(situation, () => ({}));
    reportLossIn(situation, 'one');
  },
  'an end just in time': ({ call, replace }) => {
    replace(attemptAt(call, [okOf(call, { atMs: DEADLINE_MS + 4_900 })]));
  },
};

for (const [name, change] of Object.entries(RIGHT)) {
  test(`no violation: ${name}`, () => {
    assert.deepEqual(check(changed(change)), []);
  });
}

/** Makes the first answer in a state report that a state is lost. */
function reportLossIn({ history, ledger }: Situation, state: string): void {
  const calls = new Set(ledger.filter((run) => run.state === state).map(({ call }) => call));
  const attempt = movedCalls(history).find(({ call }) => calls.has(call.id));
  assert.ok(attempt !== undefined);
  attempt.ends[0] = okOf(attempt.call, { lost: attempt.call.upstream });
}

/** Returns the calls of a client at one upstream with states. */
function movedCalls({ attempts }: History): readonly Attempt[] {
  const byUpstream = Map.groupBy(attempts, ({ call }) => call.upstream);
  byUpstream.delete('modern');
  const found = [...byUpstream.values()].find((each) => each.length > 2) ?? [];
  assert.ok(found.length > 2);
  return found;
}

/** Makes the calls of the first client at one upstream run in two states, one after the other. @returns the later calls. */
function moveState({ history, ledger }: Situation, own: (attempt: Attempt) => object): readonly Attempt[] {
  const attempts = movedCalls(history);
  for (const [index, attempt] of attempts.entries()) {
    const found = ledger.findIndex(({ call }) => call === attempt.call.id);
    const state = index < 2 ? 'one' : 'two';
    ledger[found] = runOf(attempt.call, { state, atMs: index });
    if (index >= 2) attempt.ends[0] = okOf(attempt.call, own(attempt));
  }
  return attempts.slice(2);
}

/** Each row breaks one rule. */
const WRONG: readonly (readonly [Rule, string, Change])[] = [
  [
    'a',
    'an execution twice',
    ({ call, ledger, replace }) => {
      ledger.push(runOf(call, { run: 'second' }));
      replace(attemptAt(call, [{ kind: 'closed', why: 'reset', atMs: 50 }]));
    },
  ],
  [
    'a',
    'an execution that nobody has asked for',
    ({ call, ledger }) => void ledger.push(runOf({ ...call, id: 'other-1' })),
  ],
  ['b', 'a result without an execution', ({ call, ledger }) => removeRunAnd(ledger, call)],
  ['b', 'the result of another nonce', ({ call, replace }) => replaceEnd(call, replace, { nonce: 'nonce:x:1:1;' })],
  ['b', 'the result of another execution', ({ call, replace }) => replaceEnd(call, replace, { run: 'other' })],
  ['b', 'a result without a nonce', ({ call, replace }) => replaceEnd(call, replace, { nonce: undefined })],
  [
    'b',
    'the result of an earlier attempt',
    ({ call, replace }) =>
      replace(attemptAt(call, [refused('unknown')], { progress: [] }), attemptAt(call, [okOf(call)], { number: 2 })),
  ],
  ['c', 'executed "no" of a call that ran', ({ call, replace }) => replace(attemptAt(call, [refused('no')]))],
  [
    'c',
    'executed "yes" of a call that did not run',
    ({ call, ledger, replace }) => {
      removeRun(ledger, call);
      replace(attemptAt(call, [refused('yes')]));
    },
  ],
  ['d', 'bytes of another client', ({ trial, history }) => void history.seen.add(nonceOfAnother(trial, history))],
  ['e', 'no end', ({ call, replace }) => replace(attemptAt(call, []))],
  ['e', 'two ends', ({ call, replace }) => replace(attemptAt(call, [okOf(call), okOf(call)]))],
  [
    'e',
    'an end too late',
    ({ call, replace }) => replace(attemptAt(call, [okOf(call, { atMs: DEADLINE_MS + 5_001 })])),
  ],
  ['e', 'a call that the trial did not send', ({ call, ledger, replace }) => (removeRun(ledger, call), replace())],
  ['f', 'a gap', ({ call, replace }) => replace(attemptAt(call, [refused('unknown')], { progress: [1, 3] }))],
  ['f', 'a repetition', ({ call, replace }) => replace(attemptAt(call, [refused('unknown')], { progress: [1, 1] }))],
  ['f', 'another order', ({ call, replace }) => replace(attemptAt(call, [refused('unknown')], { progress: [2, 1] }))],
  [
    'f',
    'a result before the last step',
    ({ call, replace }) => replace(attemptAt(call, [okOf(call)], { progress: [1] })),
  ],
  [
    'g',
    'an upstream that serves a client no more',
    () => ({ recoveries: [{ client: 'ann-1', upstream: 'stdio', tookMs: undefined, last: 'closed' }] }),
  ],
  ['i', 'a state that was lost in silence', (situation) => void moveState(situation, () => ({}))],
  [
    'i',
    'two lost states, of which one was reported',
    (situation) => {
      const last = moveState(situation, () => ({})).at(-1);
      assert.ok(last !== undefined);
      reportLossIn(situation, 'two');
      const { ledger } = situation;
      const found = ledger.findIndex(({ call }) => call === last.call.id);
      ledger[found] = runOf(last.call, { state: 'three', atMs: 40 });
    },
  ],
  [
    'i',
    'a state that was lost in silence, before a call that failed',
    (situation) => {
      const last = moveState(situation, () => ({})).at(-1);
      assert.ok(last !== undefined);
      const { history, ledger } = situation;
      const failed = attemptAt(last.call, [refused('unknown', 70)], { sentMs: 60 });
      history.attempts.splice(history.attempts.indexOf(last), 1, failed);
      const found = ledger.findIndex(({ call }) => call === last.call.id);
      ledger[found] = runOf(last.call, { state: 'two', atMs: 65 });
    },
  ],
  [
    'h',
    'an internal error',
    ({ call, replace }) =>
      replace(
        attemptAt(call, [{ kind: 'error', claim: 'unknown', code: 'internal-error', text: '', atMs: 9 }], {
          progress: [],
        }),
      ),
  ],
  ['h', 'a process that outlives its replica', () => ({ defects: ['children outlive it: 17'] })],
];

function removeRunAnd(ledger: LedgerEntry[], call: PlannedCall): void {
  removeRun(ledger, call);
}

function replaceEnd(call: PlannedCall, replace: Situation['replace'], own: object): void {
  replace(attemptAt(call, [okOf(call, own)]));
}

function nonceOfAnother({ histories }: Trial, history: History): string {
  const [nonce] = histories.find((other) => other !== history)?.seen ?? [];
  assert.ok(nonce !== undefined);
  return nonce;
}

for (const [rule, name, change] of WRONG) {
  test(`a violation of (${rule}): ${name}`, () => {
    const found = check(changed(change));
    assert.deepEqual([...new Set(found.map((each) => each.rule))], [rule], JSON.stringify(found));
  });
}
