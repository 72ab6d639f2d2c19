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

interface Counts {
  readonly passed: number;
  readonly failed: number;
}

/** A script of package.json, a set of test files, or a program that counts for itself with `--json FILE`. */
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
const OLDEST_NODE = 24;
const FILE_TIMEOUT_MS = 180_000;
const ENDING_MS = 3_000;

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
  const child = spawn(command, args, { ...options, stdio: [...options.stdio] });
  await once(child, 'exit');
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
  const tests = runTests({ files, concurrency: atOnce, timeout: FILE_TIMEOUT_MS, isolation: 'process' });
  tests.on('test:summary', ({ file, counts }) => {
    if (file === undefined) total = { passed: counts.passed, failed: counts.tests - counts.passed - counts.skipped };
  });
  const report = tests.compose(spec);
  report.pipe(process.stdout, { end: false });
  await finished(report);
  return total;
}

async function runProgram(file: string, args: readonly string[]): Promise<Counts> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-run-'));
  const json = join(dir, 'counts.json');
  try {
    const code = await exitCode(process.execPath, [join(ROOT, file), ...args, '--json', json], false);
    const { passed, failed } = JSON.parse(await readFile(json, 'utf8'));
    return { passed: Number(passed), failed: Number(failed) + (code !== 0 && failed === 0 ? 1 : 0) };
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
  let passed = 0;
  let failed = 0;
  const summary: string[] = [];
  const failedSteps = new Set<string>();
  for (const step of steps) {
    console.log(`\n── ${step.name}`);
    const began = performance.now();
    const isBlocked = step.after !== undefined && failedSteps.has(step.after);
    if (isBlocked) console.error(`${step.name}: not run, since "${step.after}" failed`);
    const counts = isBlocked ? counted(false) : await perform(step);
    if (counts.failed > 0) failedSteps.add(step.name);
    const ran = counts.passed + counts.failed;
    const minutes = ((performance.now() - began) / 60_000).toFixed(1);
    summary.push(`${step.name.padEnd(18)}${minutes.padStart(5)} min  ${counts.passed} passed, ${counts.failed} failed`);
    if (ran === 0) console.error(`${step.name}: nothing ran`);
    passed += counts.passed;
    failed += ran === 0 ? 1 : counts.failed;
  }
  failed += await sweep();
  await rm(code, { recursive: true, force: true });
  console.log(`\n${summary.join('\n')}\n\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}

if (Number(process.versions.node.split('.', 1)) < OLDEST_NODE) {
  console.error(
    `These tests need Node ${OLDEST_NODE} and this is ${process.version}. Run \`npm ci\`, then \`npm test\`.`,
  );
  process.exitCode = 1;
} else await main(process.argv[2] ?? '');
