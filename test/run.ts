/**
 * Runs the tests: `node test/run.ts unit` or `node test/run.ts all`.
 *
 * The last line is `<n> passed, <n> failed` over all steps. A step that runs nothing fails, and so does a run that leaves a
 * process behind.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { finished } from 'node:stream/promises';
import { run as runTests } from 'node:test';
import { spec } from 'node:test/reporters';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { leftovers, mark } from './support/leftovers.ts';
import { isTooLong } from './support/test-name.ts';

interface Counts {
  readonly passed: number;
  readonly failed: number;
  /** A line for each failure that has a name. */
  readonly failures?: readonly string[];
}

/**
 * A script of package.json, a set of test files, or a program that counts for itself with `--json FILE`: `passed`, `failed`, and `failures` if it
 * has a line for each.
 */
type Step = {
  readonly name: string;
  /** The step that must pass first. If it fails, this one fails without being run. */
  readonly after?: string;
} & (
  | { readonly kind: 'script' }
  | { readonly kind: 'tests'; readonly files: readonly string[]; readonly atOnce: number }
  | { readonly kind: 'program'; readonly file: string; readonly args: readonly string[] }
);

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const WATCHDOG = new URL('support/watchdog.ts', import.meta.url).href;
const OLDEST_NODE = 24;
const TEST_TIMEOUT_MS = 180_000;
/** The longest time of a program, which is ended then and has failed. */
const PROGRAM_TIMEOUT_MS = 20 * 60_000;
/** The longest time of the whole run, which is ended then. CI ends it without a word after 90 minutes. */
const RUN_TIMEOUT_MS = 80 * 60_000;
const ENDING_MS = 3_000;
/** Failures that the end of the run repeats, since CI may show only the last lines. */
const MAX_FAILURES = 50;

const cores = availableParallelism();
/** Folders whose tests are steps of their own. */
const APART = ['e2e', 'peers'];

const unit: Step = {
  kind: 'tests',
  name: 'unit',
  files: ['test/**/*.test.ts', ...APART.map((folder) => `!test/${folder}/**`)],
  atOnce: cores,
};

/** Each of these tests starts gateways and servers of its own, so it keeps more than one core busy. */
const half = Math.max(1, Math.floor(cores / 2));

const peersInstall: Step = { kind: 'program', name: 'peers install', file: 'test/peers/install.ts', args: [] };
const after = peersInstall.name;
const peersByNumber: Step = {
  kind: 'tests',
  after,
  name: 'peers by number',
  files: ['test/peers/**/*.test.ts'],
  atOnce: cores,
};
const peersTrial = (name: string, ...args: readonly string[]): Step => ({
  kind: 'program',
  name,
  after,
  file: 'test/peers/run.ts',
  args,
});
const peersConformance = (...args: readonly string[]): Step => ({
  kind: 'program',
  name: 'peers conformance',
  after,
  file: 'test/peers/conformance.ts',
  args,
});

const RUNS: Readonly<Record<string, readonly Step[]>> = {
  unit: [unit],
  all: [
    { kind: 'script', name: 'format:check' },
    { kind: 'script', name: 'lint' },
    { kind: 'script', name: 'types' },
    { kind: 'script', name: 'dead' },
    unit,
    { kind: 'tests', name: 'e2e', files: ['test/e2e/**/*.test.ts'], atOnce: half },
    { kind: 'program', name: 'matrix', file: 'test/matrix/run.ts', args: ['--check'] },
    { kind: 'program', name: 'chaos', file: 'test/chaos/run.ts', args: ['--seeds', '5'] },
    { kind: 'program', name: 'fuzz', file: 'test/fuzz/run.ts', args: ['--seed', '1'] },
    { kind: 'program', name: 'conformance', file: 'test/conformance/run.ts', args: [] },
    // A part of the trials with servers and clients of other projects. `peers` runs the rest; see `docs/testing.md`.
    peersInstall,
    peersTrial('peers', '--quick'),
    peersTrial('peers late', '--quick', '--late'),
    peersConformance('--server', 'python', '--server', 'typescript', '--endpoint', 'single'),
    peersByNumber,
  ],
  peers: [peersInstall, peersTrial('peers'), peersTrial('peers late', '--late'), peersConformance(), peersByNumber],
};

const counted = (isPassed: boolean): Counts => (isPassed ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 });

async function exitCode(command: string, args: readonly string[], shell: boolean): Promise<number | null> {
  const PATH = [join(ROOT, 'node_modules', '.bin'), process.env['PATH']].join(delimiter);
  const options = { cwd: ROOT, shell, stdio: ['ignore', 'inherit', 'inherit'] as const, env: { ...process.env, PATH } };
  const bounds = { timeout: PROGRAM_TIMEOUT_MS, killSignal: 'SIGKILL' as const };
  const child = spawn(command, args, { ...options, ...bounds, stdio: [...options.stdio] });
  await once(child, 'exit');
  if (child.signalCode !== null) console.error(`${[command, ...args].join(' ')} was ended by ${child.signalCode}`);
  return child.exitCode;
}

async function runScript(name: string): Promise<Counts> {
  const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  return counted((await exitCode(String(scripts[name]), [], true)) === 0);
}

async function runFiles(globs: readonly string[], atOnce: number): Promise<Counts> {
  const wanted = globs.filter((glob) => !glob.startsWith('!'));
  const exclude = globs.filter((glob) => glob.startsWith('!')).map((glob) => glob.slice(1));
  const files = globSync(wanted, { cwd: ROOT, exclude })
    .toSorted()
    .map((file) => join(ROOT, file));
  if (files.length === 0) return { passed: 0, failed: 0 };

  let total: Counts = counted(false);
  const tests = runTests({
    files,
    concurrency: atOnce,
    timeout: TEST_TIMEOUT_MS,
    isolation: 'process',
    execArgv: ['--import', WATCHDOG],
  });
  const longNames = new Set<string>();
  const failures: string[] = [];
  const checkName = ({ name }: { readonly name: string }): void => {
    // A file without tests is reported under its path.
    if (isTooLong(name) && !files.includes(name)) longNames.add(name);
  };
  tests.on('test:pass', checkName).on('test:fail', checkName);
  tests.on('test:fail', ({ name, file = '', details }) => failures.push(`${file}: ${name}: ${details.error.message}`));
  tests.on('test:summary', ({ file, counts }) => {
    if (file === undefined) total = { passed: counts.passed, failed: counts.tests - counts.passed - counts.skipped };
  });
  const report = tests.compose(spec);
  report.pipe(process.stdout, { end: false });
  await finished(report);
  for (const name of longNames) failures.push(`the name of a test is too long: ${name}`);
  return { passed: total.passed, failed: total.failed + longNames.size, failures };
}

async function runProgram(file: string, args: readonly string[]): Promise<Counts> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-run-'));
  const json = join(dir, 'counts.json');
  try {
    const code = await exitCode(process.execPath, [join(ROOT, file), ...args, '--json', json], false);
    const { passed, failed, failures = [] } = JSON.parse(await readFile(json, 'utf8'));
    return { passed: Number(passed), failed: Number(failed) + (code !== 0 && failed === 0 ? 1 : 0), failures };
  } catch (error) {
    console.error(error);
    return counted(false);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function perform(step: Step): Promise<Counts> {
  if (step.kind === 'script') return runScript(step.name);
  return step.kind === 'tests' ? runFiles(step.files, step.atOnce) : runProgram(step.file, step.args);
}

/** Ends the processes with our mark that still run after a moment. @returns their number. */
async function sweep(): Promise<number> {
  const deadline = Date.now() + ENDING_MS;
  let left = await leftovers();
  while (left.length > 0 && Date.now() < deadline) {
    await delay(100);
    left = await leftovers();
  }
  for (const { pid, command } of left) {
    console.error(`left behind: process ${pid}: ${command}`);
    process.kill(pid, 'SIGKILL');
  }
  return left.length;
}

async function main(name: string): Promise<void> {
  const steps = RUNS[name];
  if (steps === undefined) throw new Error(`usage: node test/run.ts ${Object.keys(RUNS).join('|')}`);
  mark();
  // Tests start the same programs many times, and Node compiles them once.
  const code = await mkdtemp(join(tmpdir(), 'linkspan-code-'));
  process.env['NODE_COMPILE_CACHE'] = code;
  // Gateways write the file by which commands find them, and those that are killed leave it.
  process.env['XDG_STATE_HOME'] = join(code, 'state');
  let passed = 0;
  let failed = 0;
  const summary: string[] = [];
  const failures: string[] = [];
  const failedSteps = new Set<string>();
  let current = '';
  const deadline = setTimeout(() => {
    console.error(
      `\n${summary.join('\n')}\n"${current}" has not ended after ${RUN_TIMEOUT_MS / 60_000} minutes of the run`,
    );
    void sweep().finally(() => process.exit(1));
  }, RUN_TIMEOUT_MS).unref();
  for (const step of steps) {
    current = step.name;
    console.log(`\n── ${step.name}`);
    const began = performance.now();
    const isBlocked = step.after !== undefined && failedSteps.has(step.after);
    if (isBlocked) console.error(`${step.name}: not run, since "${step.after}" failed`);
    const counts = isBlocked ? counted(false) : await perform(step);
    if (counts.failed > 0) failedSteps.add(step.name);
    for (const line of counts.failures ?? []) failures.push(`${step.name}: ${line}`);
    const ran = counts.passed + counts.failed;
    const minutes = ((performance.now() - began) / 60_000).toFixed(1);
    summary.push(`${step.name.padEnd(18)}${minutes.padStart(5)} min  ${counts.passed} passed, ${counts.failed} failed`);
    if (ran === 0) console.error(`${step.name}: nothing ran`);
    passed += counts.passed;
    failed += ran === 0 ? 1 : counts.failed;
  }
  clearTimeout(deadline);
  failed += await sweep();
  await rm(code, { recursive: true, force: true });
  if (failures.length > 0) console.log(`\nfailed:\n${failures.slice(0, MAX_FAILURES).join('\n')}`);
  console.log(`\n${summary.join('\n')}\n\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}

if (Number(process.versions.node.split('.', 1)) < OLDEST_NODE) {
  console.error(
    `These tests need Node ${OLDEST_NODE} and this is ${process.version}. Run \`npm ci\`, then \`npm test\`.`,
  );
  process.exitCode = 1;
} else await main(process.argv[2] ?? '');
