import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GatewayError } from '../../src/errors.ts';
import { createLogger, setLogLevel } from '../../src/telemetry/log.ts';
import { stopTime } from '../support/stopped-time.ts';
import { RepeatedEvents } from '../../src/telemetry/repeated-events.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

// N-10
test('the first failure is logged, then counts at growing intervals', () => {
  const repeats = new RepeatedEvents();
  const reported: [number, number][] = [];
  for (let atMs = 0; atMs <= 30 * MINUTE; atMs += 10 * SECOND) {
    const due = repeats.due('files failed', `failed ${atMs} times`, atMs);
    if (due !== undefined) reported.push([atMs / MINUTE, due]);
  }
  assert.deepEqual(reported, [
    [0, 0],
    [1, 6],
    [5, 24],
    [21, 96],
  ]);
});

test('a line tells how many events before it had none', () => {
  const repeats = new RepeatedEvents();
  const times = [0, 1, 2, MINUTE, MINUTE + 1, 5 * MINUTE];
  assert.deepEqual(
    times.map((atMs) => repeats.dueAfter('files', 'refused', atMs)),
    [0, undefined, undefined, 2, undefined, 1],
  );
});

// N-10
test('another reason, another key, or a long pause is logged at once', () => {
  const repeats = new RepeatedEvents();
  assert.equal(repeats.due('files', 'refused', 0), 0);
  assert.equal(repeats.due('files', 'refused', 1), undefined);
  assert.equal(repeats.due('files', 'timed out', 2), 0);
  assert.equal(repeats.due('web', 'timed out', 3), 0);
  assert.equal(repeats.due('web', 'timed out', 12 * MINUTE), 0);
});

// N-10
test('reasons that take turns are counted one by one', () => {
  const repeats = new RepeatedEvents();
  const due: number[] = [];
  for (let atMs = 0; atMs <= 2 * MINUTE; atMs += SECOND) {
    const count = repeats.due('files failed', atMs % 2_000 === 0 ? 'refused' : 'timed out', atMs);
    if (count !== undefined) due.push(count);
  }
  assert.deepEqual(due, [0, 0, 30, 30]);
});

// N-10
test('reasons that always differ do not grow the memory', () => {
  const repeats = new RepeatedEvents();
  for (let i = 0; i < 1_000; i++) assert.equal(repeats.due('files', 'a'.repeat(i), i), 0);
  assert.equal(repeats.due('files', 'a'.repeat(999), 1_000), undefined, 'the latest is known');
  assert.equal(repeats.due('files', '', 1_001), 0, 'the first is forgotten');
});

function logged(
  level: 'info' | 'debug',
  write: (log: ReturnType<typeof createLogger>) => void,
): Record<string, unknown>[] {
  const lines: string[] = [];
  write(createLogger(level, { write: (line) => void lines.push(line) }));
  return lines.map((line) => ({ ...Object(JSON.parse(line)) }));
}

const FAILURE = new GatewayError(
  'upstream-unavailable',
  { upstream: 'files', message: 'not found' },
  new Error('no files at /x'),
);

// N-10
test('five equal failures of an upstream are one JSON line without a stack', () => {
  const lines = logged('info', (log) => {
    const child = log.child({ upstream: 'files' });
    for (let i = 0; i < 5; i++) child.warn({ err: FAILURE }, 'upstream did not start');
    log.child({ upstream: 'web' }).warn({ err: FAILURE }, 'upstream did not start');
  });
  assert.deepEqual(
    lines.map(({ upstream }) => upstream),
    ['files', 'web'],
  );
  assert.deepEqual(lines[0]?.['err'], {
    type: 'GatewayError',
    code: 'upstream-unavailable',
    message: 'Upstream unavailable: not found',
    detail: { upstream: 'files' },
    causes: ['no files at /x'],
  });
});

// N-10
test('the line of a recovery has the number of failures that no line has reported', () => {
  const lines = logged('info', (log) => {
    const child = log.child({ upstream: 'files' });
    for (let i = 0; i < 5; i++) child.warn({ phase: 'failed', reason: 'not found' }, 'upstream state');
    child.info({ phase: 'ready' }, 'upstream state');
  });
  assert.deepEqual(
    lines.map(({ phase, failures, repeated }) => [phase, failures, repeated]),
    [
      ['failed', undefined, undefined],
      ['ready', 4, undefined],
    ],
  );
});

// N-10
test('a failure is logged again in time after the clock was set back', (t) => {
  const [wallMs, monotonicMs] = [Date.now(), performance.now()];
  const lines = logged('info', (log) => {
    const child = log.child({ upstream: 'files' });
    child.warn({ phase: 'failed', reason: 'not found' }, 'upstream state');
    t.mock.method(Date, 'now', () => wallMs - 60 * MINUTE);
    t.mock.method(performance, 'now', () => monotonicMs + 12 * MINUTE);
    child.warn({ phase: 'failed', reason: 'not found' }, 'upstream state');
  });
  assert.equal(lines.length, 2);
});

// N-10
test('stacks and all lines come and go with the level of the running log', () => {
  const lines = logged('info', (log) => {
    const child = log.child({ upstream: 'files' });
    for (const level of ['info', 'debug', 'info'] as const) {
      setLogLevel(log, level);
      for (let i = 0; i < 3; i++) child.warn({ err: FAILURE }, 'upstream did not start');
    }
  });
  assert.deepEqual(
    lines.map((line) => JSON.stringify(line).includes('"stack"')),
    [false, true, true, true],
  );
});

// N-10
test('unexpected errors have stacks; at debug all errors do, and all lines stay', () => {
  const [defect] = logged('info', (log) => log.error({ err: new TypeError('x is undefined') }, 'request failed'));
  assert.match(JSON.stringify(defect), /"stack":"TypeError: x is undefined\\n\s+at /);
  const hidden = new GatewayError('upstream-unavailable', { message: 'not found' }, new TypeError('x is undefined'));
  const [below] = logged('info', (log) => log.error({ err: hidden }, 'request failed'));
  assert.match(JSON.stringify(below), /"stack":/);
  const lines = logged('debug', (log) => {
    for (let i = 0; i < 3; i++) log.warn({ upstream: 'files', err: FAILURE }, 'upstream did not start');
  });
  assert.equal(lines.length, 3);
  assert.match(JSON.stringify(lines[0]), /"stack":/);
});

// N-10
test('the last line of an upstream has its present state, also if it flaps', (t) => {
  const time = stopTime(t);
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => void lines.push(line) }).child({ upstream: 'files' });
  const state = (phase: string, reason?: string) => log.warn({ phase, reason }, 'upstream state');
  const written = () => lines.splice(0).map((line) => Object(JSON.parse(line)).phase);
  state('ready');
  state('failed', 'answered HTTP 503');
  state('starting');
  state('ready');
  assert.deepEqual(written(), ['ready', 'failed', 'starting', 'ready'], 'the recovery is no repeat');
  for (let n = 0; n < 10; n++) {
    state('failed', 'answered HTTP 503');
    state('starting');
    state('ready');
    time.pass(1_000);
  }
  assert.deepEqual(written(), [], 'the last line says so already');
  state('failed', 'answered HTTP 503');
  state('starting');
  state('failed', 'answered HTTP 503');
  time.pass(60_000);
  assert.deepEqual(written(), ['failed'], 'it stays so');
  state('ready');
  assert.deepEqual(written(), ['ready']);
});

test('another HTTP status or exit code is another failure, and another port is not', () => {
  const repeats = new RepeatedEvents();
  const due = (reason: string) => repeats.due('files', reason, 0);
  assert.deepEqual([due('answered HTTP 500'), due('answered HTTP 503'), due('answered HTTP 500')], [0, 0, undefined]);
  assert.deepEqual([due('exited with code 1'), due('exited with code 137')], [0, 0]);
  assert.deepEqual([due('127.0.0.1:4100 refused'), due('127.0.0.1:4101 refused')], [0, undefined]);
});

test('lists that keep changing have lines at growing intervals, and a last one', (t) => {
  const time = stopTime(t);
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => void lines.push(line) }).child({ upstream: 'files' });
  const written = () =>
    lines.splice(0).map((line) => {
      const { era, tools, repeated } = Object(JSON.parse(line));
      return [era, tools, repeated];
    });
  const list = (era: string, tools: number) => log.info({ era, tools }, 'upstream lists');
  list('legacy', 0);
  list('modern', 9);
  for (let tools = 1; tools <= 200; tools++) {
    time.pass(1_500);
    list('legacy', tools);
  }
  assert.deepEqual(written(), [
    ['legacy', 0, undefined],
    ['modern', 9, undefined],
    ['legacy', 40, 40],
    ['legacy', 200, 160],
  ]);
  list('legacy', 3);
  list('legacy', 4);
  time.pass(60_000);
  assert.deepEqual(written(), [['legacy', 4, undefined]]);
});
