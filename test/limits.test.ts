import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { LIMITS } from '../src/limits.ts';
import { createMetrics } from '../src/telemetry/metrics.ts';

const ROOT = join(import.meta.dirname, '..');
const NUMBERS: ReadonlyMap<string, number> = new Map([
  ['KiB', 1_024],
  ['MiB', 1_048_576],
  ['GiB', 1_073_741_824],
  ['s', 1_000],
  ['min', 60_000],
  ['h', 3_600_000],
]);

/** `1 MiB` → 1 048 576; `256` → 256; `10 000` → 10 000. */
function valueOf(text: string): number {
  const [, digits = '', unit = ''] = /^([\d ]+?)(?: ([A-Za-z]+))?$/.exec(text) ?? [];
  const factor = unit === '' || unit === 'ms' ? 1 : (NUMBERS.get(unit) ?? Number.NaN);
  return Number(digits.replaceAll(' ', '')) * factor;
}

const rows = readFileSync(join(ROOT, 'docs/limits.md'), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, name = '', value = '', scope = '', beyond = '', metric = '']) => ({
    name: name.replaceAll('`', ''),
    value: valueOf(value),
    scope,
    beyond,
    metric: metric.replaceAll('`', '').replace(/\{.*/, ''),
  }));

test('docs/limits.md lists every fixed bound with its value, and no other', () => {
  assert.deepEqual(Object.fromEntries(rows.map(({ name, value }) => [name, value])), { ...LIMITS });
});

test('docs/limits.md has scope, effect and metric for each bound', async () => {
  const text = await createMetrics('0').text();
  for (const { name, scope, beyond, metric } of rows) {
    assert.ok(scope !== '' && beyond !== '', `${name}: scope and consequence`);
    const shown = metric === '' ? 'linkspan_limit_reached_total' : metric;
    assert.match(text, new RegExp(`^# TYPE ${shown} `, 'm'), `${name}: no such metric: ${shown}`);
  }
});

test('every fixed bound has a test that goes beyond it', () => {
  const tests = globSync('test/**/*.ts', { cwd: ROOT }).map((file) => readFileSync(join(ROOT, file), 'utf8'));
  const shown = (name: string): boolean => tests.some((source) => source.includes(`limit ${name}`));
  assert.deepEqual(
    rows.map(({ name }) => name).filter((name) => !shown(name)),
    [],
  );
});
