import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger, type Logger } from '../../../src/telemetry/log.ts';
import { RefusalLines } from '../../../src/telemetry/log/refusal-lines.ts';

const MOST = LIMITS.refusalLinesPerSecond;

/** A log at a level, and its parsed lines. */
function openLog(level: 'info' | 'debug'): {
  readonly log: Logger;
  readonly lines: Readonly<Record<string, unknown>>[];
} {
  const lines: Readonly<Record<string, unknown>>[] = [];
  return { log: createLogger(level, { write: (line) => void lines.push({ ...Object(JSON.parse(line)) }) }), lines };
}

/** Returns how many of `count` refusals get a line. */
function admitted(refusals: RefusalLines, key: string | undefined, count: number): number {
  const principal = key === undefined ? undefined : { key, label: `label of ${key}` };
  return Array.from({ length: count }, () => refusals.admits(principal)).filter(Boolean).length;
}

// N-70
test('limit refusalLinesPerSecond: one line says how many refusals have none', () => {
  const { log, lines } = openLog('info');
  const limits: string[] = [];
  const refusals = new RefusalLines(log, (limit) => limits.push(limit));
  assert.equal(admitted(refusals, 'ann', MOST + 90), MOST);
  assert.equal(admitted(refusals, 'bob', MOST), MOST, 'another principal');
  assert.equal(admitted(refusals, undefined, MOST + 1), MOST, 'none');
  assert.deepEqual(limits, ['refusalLinesPerSecond', 'refusalLinesPerSecond']);
  refusals.flush();
  assert.deepEqual(
    lines.map(({ msg, principal, suppressed }) => ({ msg, principal, suppressed })),
    [
      { msg: 'further refused requests have no line', principal: 'label of ann', suppressed: 90 },
      { msg: 'further refused requests have no line', principal: undefined, suppressed: 1 },
    ],
  );
  assert.equal(admitted(refusals, 'ann', MOST), MOST, 'after the count');
});

// N-70
test('the counts of refusals come after a second', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { log, lines } = openLog('info');
  const refusals = new RefusalLines(log, () => undefined);
  admitted(refusals, 'ann', MOST + 5);
  t.mock.timers.tick(999);
  assert.equal(lines.length, 0);
  t.mock.timers.tick(1);
  assert.equal(lines[0]?.['suppressed'], 5);
  assert.equal(admitted(refusals, 'ann', 1), 1);
});

// N-70
test('refusals of very many principals are counted together', () => {
  const { log, lines } = openLog('info');
  const refusals = new RefusalLines(log, () => undefined);
  let count = 0;
  for (let i = 0; i < 5_000; i++) count += admitted(refusals, `p${i}`, 1);
  assert.equal(count, 1_000 + MOST);
  refusals.flush();
  assert.deepEqual(
    lines.map(({ principal, suppressed }) => ({ principal, suppressed })),
    [{ principal: '(others)', suppressed: 4_000 - MOST }],
  );
});

test('at level debug each refusal has a line', () => {
  const { log } = openLog('debug');
  assert.equal(admitted(new RefusalLines(log, () => undefined), 'ann', 1_000), 1_000);
});
