/**
 * Runs the tests: `node test/run.ts gate`, `full`, `unit`, `peers`, or single steps by name: `node test/run.ts e2e "peers late"`.
 *
 * The last line is `<n> passed, <n> failed` over all steps. A step that runs nothing fails, and so does a run that leaves a process
 * behind. A test file that fails in the gate runs once more, alone, after all steps; `docs/testing.md` has the rules.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { endLines, reportPage, sum } from './runner/report.ts';
import { Run } from './runner/run.ts';
import { BUILD, BUNDLE, chooseSteps } from './runner/steps.ts';
import { ROOT } from './runner/test-files.ts';
import { leftovers, mark } from './support/leftovers.ts';

/** The gate fails if it lasts longer, whatever its tests say. It takes 10 to 20 minutes on two quiet cores of different hosts. */
const GATE_LIMIT_MINUTES = 60;
/** The longest time of a run, which is ended then. CI ends the gate without a word after 90 minutes. */
const GATE_RUN_MINUTES = 80;
const FULL_RUN_MINUTES = 240;
const ENDING_MS = 15_000;

/** Ends the processes with our mark that still run after a moment. @returns a sentence for each. */
async function sweep(): Promise<string[]> {
  const deadline = Date.now() + ENDING_MS;
  let left = await leftovers();
  while (left.length > 0 && Date.now() < deadline) {
    await delay(100);
    left = await leftovers();
  }
  for (const { pid } of left) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended in the meantime.
    }
  }
  return left.map(({ pid, command }) => `process ${pid} was left behind: ${command}`);
}

async function main(names: readonly string[]): Promise<void> {
  const steps = chooseSteps(names);
  const isFull = names.includes('full');
  const isGate = names.length === 1 && names[0] === 'gate';
  mark();
  // Tests start the same programs many times, and Node compiles them once.
  const code = await mkdtemp(join(tmpdir(), 'linkspan-code-'));
  process.env['NODE_COMPILE_CACHE'] = code;
  // Gateways write the file by which commands find them, and those that are killed leave it.
  process.env['XDG_STATE_HOME'] = join(code, 'state');
  if (steps.some(({ name }) => name === BUILD)) process.env['LINKSPAN_MAIN'] = join(ROOT, BUNDLE);
  if (isFull) process.env['LINKSPAN_SEED'] ??= String(Date.now() % 2 ** 31);
  process.env['LINKSPAN_SEED'] ??= '1';
  if (isFull) process.env['LINKSPAN_FULL'] = '1';
  console.log(`seed ${process.env['LINKSPAN_SEED']} (LINKSPAN_SEED)`);
  const run = new Run(isGate);
  let current = '';
  const longest = isGate ? GATE_RUN_MINUTES : FULL_RUN_MINUTES;
  const deadline = setTimeout(() => {
    console.error(endLines(run.outcome).join('\n'));
    console.error(`"${current}" has not ended after ${longest} minutes of the run`);
    void sweep().finally(() => process.exit(1));
  }, longest * 60_000).unref();
  for (const step of steps) {
    current = step.name;
    await run.perform(step);
  }
  await run.retry();
  clearTimeout(deadline);
  run.check('leftovers', await sweep());
  if (isGate) {
    const minutes = run.steps.reduce((all, step) => all + step.minutes, 0);
    const isOver = minutes > GATE_LIMIT_MINUTES;
    const slow = `the gate took ${minutes.toFixed(1)} minutes, and may take ${GATE_LIMIT_MINUTES}: move tests to \`npm run test:full\``;
    run.check('budget', isOver ? [slow] : []);
  }
  await rm(code, { recursive: true, force: true });
  if (isFull) await writeFile(join(ROOT, 'docs', 'test-report.md'), reportPage(run.outcome, new Date()));
  console.log(`\n${endLines(run.outcome).join('\n')}`);
  process.exitCode = sum(run.steps).failed === 0 ? 0 : 1;
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
