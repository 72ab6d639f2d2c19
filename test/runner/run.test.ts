import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { z } from 'zod';
import { endLines, type RunOutcome, sum } from './report.ts';
import { chooseSteps } from './steps.ts';
import { mayRetry, tagsAt } from './tags.ts';
import { ROOT, selectFiles } from './test-files.ts';

const TIMEOUT = { timeout: 120_000 };
const FIXTURES = 'test/fixtures/gate';

const OUTCOME = z.object({
  steps: z.array(
    z.object({
      name: z.string(),
      minutes: z.number(),
      budgetMinutes: z.number(),
      passed: z.number(),
      failed: z.number(),
    }),
  ),
  failures: z.array(z.string()),
  flaky: z.array(z.string()),
  notRun: z.array(z.string()),
  machine: z.string(),
});

/** Runs fixtures as a step of the gate, in a process of its own, since the test runner does not run inside a test. */
async function perform(...names: readonly string[]): Promise<RunOutcome> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-gate-'));
  try {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const args = [join(FIXTURES, 'perform.ts'), ...names.map((name) => join(FIXTURES, `${name}.ts`))];
    const options = { cwd: ROOT, env: { ...env, GATE_MARKER: join(dir, 'ran') } };
    const { stdout } = await promisify(execFile)(process.execPath, args, options);
    return OUTCOME.parse(JSON.parse(/^OUTCOME (.*)$/m.exec(stdout)?.[1] ?? 'null'));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

test('a file that passes when it runs once more passes, and is named as flaky', TIMEOUT, async () => {
  const outcome = await perform('fails-once');
  assert.equal(sum(outcome.steps).failed, 0);
  assert.deepEqual(outcome.failures, []);
  assert.match(
    outcome.flaky.join('\n'),
    /^FLAKY test\/fixtures\/gate\/fails-once\.ts › passes from the second run on: this is the first run \(load .*, steal \d+ %\)$/,
  );
});

test('a file that fails twice fails the run, with place, error and duration', TIMEOUT, async () => {
  const outcome = await perform('fails-always-1', 'fails-once');
  assert.equal(sum(outcome.steps).failed, 1);
  assert.match(
    outcome.failures.join('\n'),
    /^test\/fixtures\/gate\/fails-always-1\.ts:4 › fails in every run: as always \(\d+\.\d s\) \(twice\)$/,
  );
  assert.equal(outcome.flaky.length, 1);
});

test('with more than three failed files nothing runs again', TIMEOUT, async () => {
  const outcome = await perform('fails-always-1', 'fails-always-2', 'fails-always-3', 'fails-once');
  assert.equal(sum(outcome.steps).failed, 4);
  assert.deepEqual([outcome.failures.length, outcome.flaky.length], [4, 0]);
});

test('a failed test of security does not run again', TIMEOUT, async () => {
  const outcome = await perform('leaks-once');
  assert.equal(sum(outcome.steps).failed, 1);
  assert.match(outcome.failures.join('\n'), /a foreign message came .*\(never run again\)$/);
});

test('a step without files fails', TIMEOUT, async () => {
  const outcome = await perform('no-such-file');
  assert.equal(sum(outcome.steps).failed, 1);
  assert.match(outcome.failures.join('\n'), /no file matches/);
});

test('each alternative of the globs of the steps matches a test file', () => {
  const globs = chooseSteps(['full']).flatMap((step) =>
    step.kind === 'tests' ? [...step.files, ...(step.except ?? [])] : [],
  );
  const stale = [...new Set(globs.flatMap(alternatives))].filter((glob) => selectFiles([glob]).length === 0);
  assert.deepEqual(stale, []);
});

/** Returns the globs that one with at most one `{a,b}` stands for. */
function alternatives(glob: string): string[] {
  const [, before = '', names = '', after = ''] = /^(.*)\{(.*)\}(.*)$/.exec(glob) ?? [undefined, glob];
  return names.split(',').map((name) => `${before}${name}${after}`);
}

test('the end of a run has at most 60 lines, and the counts in the last one', () => {
  const line = 'x'.repeat(100);
  const lines = Array.from({ length: 200 }, () => line);
  const step = { name: 'one', budgetMinutes: 1, minutes: 1, passed: 1, failed: 2 };
  const steps = Array.from({ length: 14 }, () => step);
  const end = endLines({ steps, failures: lines, flaky: lines, notRun: lines, machine: 'machine: 2 cores' });
  assert.ok(end.length <= 60, `${end.length} lines`);
  assert.equal(end.at(-1), '14 passed, 28 failed');
});

test('numbers stand directly above a test', () => {
  const source = ['// X-001', '', '// SEC-12 N-20', '// A reason.', "test('a', () => undefined);"].join('\n');
  assert.deepEqual(tagsAt(source, 5), ['SEC-12', 'N-20']);
});

const verdicts = [
  { file: 'test/a.test.ts', tags: ['T-001'], may: true },
  { file: 'test/a.test.ts', tags: ['SEC-12'], may: false },
  { file: 'test/a.test.ts', tags: ['N-31', 'T-001'], may: false },
  { file: 'test/gateway/isolation.test.ts', tags: [], may: false },
  { file: 'test/e2e/doubled-responses.test.ts', tags: [], may: false },
];

for (const { file, tags, may } of verdicts) {
  test(`${file} ${tags.join()} ${may ? 'may run again' : 'never runs again'}`, () => {
    assert.equal(mayRetry({ file, tags }), may);
  });
}
