import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { PATIENCE_MS } from './support/patience.ts';

const ROOT = import.meta.dirname;

/** Not judged here: the runner, whose bounds end a run, and trials of programs of other projects, which have times of their own. */
const NOT_JUDGED = /^(?:run\.ts|runner\/|peers\/|conformance\/|support\/watchdog\.ts)/;

/** The mark of a line on which a short time is what the test is about. */
const SUBJECT = '// subject';

/** Bounds nothing: the time between two looks or two attempts, or a unit. */
const NO_BOUND = /_?(?:POLL|PAUSE|STEP|LOOK|RETRY|DRIP|PER)_MS$/;

const NUMBER = String.raw`(\d[\d_]*(?: \* \d[\d_]*)*)`;
const CONSTANT = new RegExp(String.raw`\bconst (\w+_MS)(?:: number)? = ${NUMBER};`);
const BOUNDS = [
  new RegExp(String.raw`\btimeout: ${NUMBER}(?! \*)`),
  new RegExp(String.raw`\bAbortSignal\.timeout\(${NUMBER}\)`),
  new RegExp(String.raw`\bassert\.ok\(performance\.now\(\) - \w+ <=? ${NUMBER}`),
];
/** The last argument of a wait for a line, on the same line or on a later one. */
const WAIT = new RegExp(String.raw`\.waitFor(?:Line|Log)\((?:[^;]*?),\s*${NUMBER},?\s*\)`, 'g');
/** A fixed pause in place of an event. Loads of end-to-end tests have pauses between calls. */
const SLEEP = new RegExp(String.raw`\b(?:(?:sleep|delay)\(|setTimeout\(\w+, )${NUMBER}[,)]`);

function valueOf(product = ''): number {
  return product.split('*').reduce((value, factor) => value * Number(factor.replaceAll('_', '')), 1);
}

/** Returns the bounds of a file that only a machine with time to spare meets. */
function shortBounds(file: string, source: string): string[] {
  const found: string[] = [];
  for (const [index, line] of source.split('\n').entries()) {
    if (line.includes(SUBJECT)) continue;
    const add = () => found.push(`${file}:${index + 1}: ${line.trim()}`);
    const [, name = '', value] = CONSTANT.exec(line) ?? [];
    if (name !== '' && !NO_BOUND.test(name) && valueOf(value) < PATIENCE_MS) add();
    const bounds = file.endsWith('.test.ts') && !file.startsWith('e2e/') ? [...BOUNDS, SLEEP] : BOUNDS;
    for (const bound of bounds) {
      const [, ms] = bound.exec(line) ?? [];
      if (ms !== undefined && valueOf(ms) < PATIENCE_MS) add();
    }
  }
  for (const [wait, ms] of source.matchAll(WAIT)) if (valueOf(ms) < PATIENCE_MS) found.push(`${file}: ${wait}`);
  return found;
}

test('bounds that a busy machine cannot meet are found', () => {
  const short = [
    'const WAIT_MS = 5_000;',
    'export const WAIT_MS = 2 * 1_000;',
    "test('x', { timeout: 20_000 }, () => undefined);",
    'AbortSignal.timeout(5_000);',
    "assert.ok(performance.now() - beganMs < 4_000, 'at once');",
    'child.waitForLine(\n  (line) => line,\n  10_000,\n);',
    'await sleep(50);',
    'await new Promise((resolve) => setTimeout(resolve, 20));',
  ];
  for (const source of short) assert.equal(shortBounds('a.test.ts', source).length, 1, source);
  const long = [
    'const WAIT_MS = 60_000;',
    'const WAIT_MS = 2 * 60_000;',
    'const BUSY_MS = 40; // subject',
    'const POLL_MS = 5;',
    "test('x', { timeout: 2 * PATIENCE_MS }, () => undefined);",
    'child.waitForLine((line) => line);',
    'await sleep(POLL_MS);',
  ];
  assert.deepEqual(
    long.flatMap((source) => shortBounds('a.test.ts', source)),
    [],
  );
});

test('a test gives an event a minute, unless the time is its subject', () => {
  const files = globSync('**/*.ts', { cwd: ROOT }).filter((file) => !NOT_JUDGED.test(file));
  assert.ok(files.length > 500);
  const found = files.flatMap((file) =>
    // This test names examples.
    file === 'waits.test.ts' ? [] : shortBounds(file, readFileSync(join(ROOT, file), 'utf8')),
  );
  assert.deepEqual(found, [], `use PATIENCE_MS, let time pass by stopTime, or say ${SUBJECT}`);
});
