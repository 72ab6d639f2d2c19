import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { backoffMs } from '../../../src/upstream/rpc/backoff.ts';
import {
  decideOpening,
  CONFIGURED,
  isUp,
  type Lifecycle,
  type LifecycleEvent,
  overall,
  PHASES,
  step,
} from '../../../src/upstream/lifecycle/lifecycle.ts';

function after(events: readonly (readonly [number, LifecycleEvent])[]): Lifecycle {
  return events.reduce((state, [atMs, event]) => step(state, event, atMs, 0), CONFIGURED);
}

const FAILED: LifecycleEvent = {
  kind: 'start-failed',
  scope: 'upstream',
  reason: 'exited with code 1',
  detail: undefined,
  startedMs: 0,
};

test('an upstream that starts is ready, without a reason', () => {
  const state = after([
    [0, { kind: 'starting' }],
    [10, { kind: 'connected' }],
  ]);
  assert.equal(state.phase, 'ready');
  assert.equal(state.reason, undefined);
  assert.deepEqual(decideOpening(state, 10), { kind: 'go' });
});

// REL-10
test('after a failed further start, a remote server is up as long as it answers', () => {
  const failed = after([
    [0, { kind: 'connected' }],
    [1000, { ...FAILED, startedMs: 900, hasNoProcess: true, isServing: true }],
  ]);
  assert.equal(failed.phase, 'degraded');
  const asked = (state: Lifecycle, answers: boolean) => step(state, { kind: 'asked', answers }, 1010, 0);
  assert.equal(asked(failed, true).phase, 'degraded');
  const down = asked(failed, false);
  assert.deepEqual([down.phase, down.reason, down.retryAtMs], ['failed', FAILED.reason, 1250]);
  assert.equal(asked(down, true).phase, 'degraded');
  assert.equal(asked(step(failed, { kind: 'connected' }, 1005, 0), false).phase, 'ready', 'another start went well');
});

test('words about credentials replace those of another failure at the same moment', () => {
  const state = after([
    [0, FAILED],
    [10, { ...FAILED, reason: 'HTTP 401', lacksCredentials: true }],
  ]);
  assert.deepEqual([state.phase, state.reason], ['needs-authorization', 'HTTP 401']);
});

test('an upstream is up in the phases ready and degraded', () => {
  assert.deepEqual(
    PHASES.filter((phase) => isUp({ ...CONFIGURED, phase })),
    ['ready', 'degraded'],
  );
});

// R1
test('after a failed start the next attempt waits, longer each time', () => {
  const waits = [1, 2, 3, 4].map((failures) => {
    const state = after(
      Array.from({ length: failures }, (_, n) => [n * 10_000, { ...FAILED, startedMs: n * 10_000 }] as const),
    );
    return state.retryAtMs - (failures - 1) * 10_000;
  });
  assert.deepEqual(waits, [250, 500, 1000, 2000]);
  assert.equal(backoffMs(50, 0), 30_000);
  assert.ok(backoffMs(1, 0.999) >= 187);
});

// REL-10
test('five failures within a minute are a crash loop, with a pause of a minute', () => {
  const state = after([0, 1000, 2000, 3000, 4000].map((atMs) => [atMs, { ...FAILED, startedMs: atMs }] as const));
  assert.equal(state.phase, 'failed');
  assert.match(state.reason ?? '', /crash loop.*exited with code 1/);
  const refused = decideOpening(state, 5000);
  assert.equal(refused.kind, 'refuse');
  assert.deepEqual(decideOpening(state, 64_000), { kind: 'go' });
});

// N-07
test('a server that is too slow to start five times is in no crash loop', () => {
  const late = { ...FAILED, isLate: true, reason: 'did not start within 1 s (timeouts.start)' };
  const state = after([0, 1000, 2000, 3000, 4000].map((atMs) => [atMs, { ...late, startedMs: atMs }] as const));
  assert.match(state.reason ?? '', /^too slow to start: failed 5 times within a minute.*\(timeouts\.start\)$/);
  assert.equal(decideOpening(state, 5000).kind, 'refuse');
});

// R1
test('failures of simultaneous attempts count once', () => {
  const state = after([10, 11, 12, 13, 14].map((atMs) => [atMs, FAILED] as const));
  assert.doesNotMatch(state.reason ?? '', /crash loop/);
  assert.equal(state.retryAtMs, 260);
});

// N-01 N-84
test('a server without a process, remote or not startable, has no crash-loop pause', () => {
  const tries = Array.from(
    { length: 6 },
    (_, n) => [n * 2_000, { ...FAILED, hasNoProcess: true, startedMs: n * 2_000 }] as const,
  );
  const state = after(tries);
  assert.equal(state.reason, 'exited with code 1');
  assert.equal(state.retryAtMs, 10_000 + backoffMs(6, 0));
});

test('failures more than a minute apart are no crash loop', () => {
  const state = after(
    [0, 20_000, 40_000, 61_000, 81_000].map((atMs) => [atMs, { ...FAILED, startedMs: atMs }] as const),
  );
  assert.doesNotMatch(state.reason ?? '', /crash loop/);
});

test('a server that crashes after it answered may start again at once', () => {
  const state = after([
    [0, { kind: 'connected' }],
    [5, { kind: 'lost', reason: 'was killed by SIGKILL', detail: undefined, early: false }],
  ]);
  assert.equal(state.phase, 'degraded');
  assert.deepEqual(decideOpening(state, 5), { kind: 'go' });
});

test('a crash before the first answer counts toward a crash loop', () => {
  const events = [0, 1, 2, 3, 4].flatMap((n): (readonly [number, LifecycleEvent])[] => [
    [n * 1000, { kind: 'connected' }],
    [n * 1000 + 1, { kind: 'lost', reason: 'exited', detail: undefined, early: true }],
  ]);
  assert.match(after(events).reason ?? '', /crash loop/);
});

test('a connection with refused credentials leaves the upstream as it was', () => {
  const refused = { ...FAILED, scope: 'connection' } as const;
  assert.deepEqual(
    after([
      [0, { kind: 'starting' }],
      [1, refused],
    ]),
    CONFIGURED,
  );
  const ready = after([
    [0, { kind: 'starting' }],
    [1, { kind: 'connected' }],
  ]);
  assert.deepEqual(step(step(ready, { kind: 'starting' }, 2, 0), refused, 3, 0), ready);
  const failed = after([[0, FAILED]]);
  assert.deepEqual(step(failed, refused, 1, 0), failed);
});

test('a further connection that fails leaves the upstream degraded, with pauses', () => {
  const states = [1, 2, 3, 4, 5].map((failures) =>
    after([
      [0, { kind: 'connected' }],
      ...Array.from({ length: failures }, (_, n): readonly [number, LifecycleEvent] => [
        (n + 1) * 1_000,
        { ...FAILED, startedMs: (n + 1) * 1_000, isServing: true },
      ]),
    ]),
  );
  assert.deepEqual(
    states.map(({ phase, retryAtMs }) => [phase, retryAtMs]),
    [
      ['degraded', 1_250],
      ['degraded', 2_500],
      ['degraded', 4_000],
      ['degraded', 6_000],
      ['degraded', 65_000],
    ],
  );
  const [, , , , loop = CONFIGURED] = states;
  assert.match(loop.reason ?? '', /crash loop.*exited with code 1/);
  assert.equal(step(loop, { kind: 'listed' }, 64_999, 0), loop, 'a listing over an open connection ends no pause');
  assert.equal(step(loop, { kind: 'listed' }, 65_000, 0).phase, 'ready');
});

test('refused credentials make an upstream with other connections need authorization', () => {
  const refused = { ...FAILED, lacksCredentials: true, isServing: true, startedMs: 1 };
  assert.equal(step(after([[0, { kind: 'connected' }]]), refused, 1, 0).phase, 'needs-authorization');
});

test('connections that crash early do not make an upstream with others fail', () => {
  const lost = { kind: 'lost', reason: 'exited', detail: undefined, early: true, isServing: true } as const;
  const state = after([1, 2, 3, 4, 5].map((n) => [n * 1_000, lost] as const));
  assert.deepEqual([state.phase, state.retryAtMs], ['degraded', 65_000]);
});

test('a start that the config makes impossible is never tried', () => {
  const state = after([[0, { kind: 'unusable', reason: 'TOKEN is not set' }]]);
  assert.deepEqual(decideOpening(state, 1e9), { kind: 'refuse', reason: 'TOKEN is not set', retryAfterMs: undefined });
});

test('a stopped upstream stays stopped', () => {
  const state = after([
    [0, { kind: 'stopped' }],
    [1, { kind: 'connected' }],
  ]);
  assert.equal(state.phase, 'stopped');
  assert.equal(decideOpening(state, 1).kind, 'refuse');
});

suite('state of an upstream with two eras', () => {
  const state = (phase: Lifecycle['phase'], reason?: string): Lifecycle => ({ ...CONFIGURED, phase, reason });
  for (const { legacy, modern, phase, reason } of [
    { legacy: state('configured'), modern: state('configured'), phase: 'configured', reason: undefined },
    { legacy: state('ready'), modern: state('configured'), phase: 'ready', reason: undefined },
    { legacy: state('configured'), modern: state('failed', 'gone'), phase: 'failed', reason: 'gone' },
    { legacy: state('ready'), modern: state('ready'), phase: 'ready', reason: undefined },
    { legacy: state('ready'), modern: state('starting'), phase: 'ready', reason: undefined },
    {
      legacy: state('ready'),
      modern: state('failed', 'gone'),
      phase: 'degraded',
      reason: 'for clients of the modern era: gone',
    },
    {
      legacy: state('failed', 'gone'),
      modern: state('ready'),
      phase: 'degraded',
      reason: 'for clients of the legacy era: gone',
    },
    { legacy: state('degraded', 'lost'), modern: state('ready'), phase: 'degraded', reason: 'lost' },
    { legacy: state('failed', 'gone'), modern: state('starting'), phase: 'failed', reason: 'gone' },
    { legacy: state('stopped'), modern: state('stopped'), phase: 'stopped', reason: undefined },
    // Eras stop one after the other.
    { legacy: state('stopped'), modern: state('ready'), phase: 'ready', reason: undefined },
  ] as const) {
    // N-40
    test(`legacy ${legacy.phase}, modern ${modern.phase}: ${phase}`, () => {
      const { phase: is, reason: why } = overall(legacy, modern);
      assert.deepEqual([is, why], [phase, reason]);
    });
  }
});
