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
import { lacks, MachineLoad } from './runner/machine.ts';
import { runProgram, runScript } from './runner/program.ts';
import {
  endLines,
  failureLine,
  flakyLine,
  reportPage,
  type RunOutcome,
  type StepOutcome,
  sum,
} from './runner/report.ts';
import { chooseSteps, type Step } from './runner/steps.ts';
import { mayRetry } from './runner/tags.ts';
import { type FailedTest, ROOT, runFiles, selectFiles } from './runner/test-files.ts';
import { leftovers, mark } from './support/leftovers.ts';

/** The gate fails if it lasts longer, whatever its tests say. */
const GATE_LIMIT_MINUTES = 25;
/** The longest time of a whole run, which is ended then. CI ends it without a word after 90 minutes. */
const RUN_MS = 80 * 60_000;
const ENDING_MS = 15_000;
/** With more failed files, the machine or the change is the cause, and none runs again. */
const MAX_RETRIED = 3;

/** A run while it goes on. */
class Run {
  readonly steps: StepOutcome[] = [];
  readonly #failures: string[] = [];
  readonly #flaky: string[] = [];
  readonly #notRun: string[] = [];
  readonly #load = new MachineLoad();
  /** Failed tests of files that may run once more. */
  readonly #suspects: FailedTest[] = [];
  readonly #isGate: boolean;

  /** @param isGate true if failed files run once more, and missing programs do not fail their step. */
  constructor(isGate: boolean) {
    this.#isGate = isGate;
  }

  get outcome(): RunOutcome {
    const machine = this.#load.line();
    return { steps: this.steps, failures: this.#failures, flaky: this.#flaky, notRun: this.#notRun, machine };
  }

  async perform(step: Step): Promise<void> {
    console.log(`\n── ${step.name}`);
    const began = performance.now();
    const { passed, failed } = await this.#countsOf(step);
    const minutes = (performance.now() - began) / 60_000;
    this.steps.push({ name: step.name, budgetMinutes: step.minutes, minutes, passed, failed });
  }

  async #countsOf(step: Step): Promise<{ readonly passed: number; readonly failed: number }> {
    const first = this.steps.find(({ name }) => name === step.after);
    if (first !== undefined && first.failed > 0)
      return this.#fail(`${step.name}: not run, since "${first.name}" failed`);
    switch (step.kind) {
      case 'machine': {
        const missing = lacks();
        for (const sentence of missing) console.error(sentence);
        this.#failures.push(...missing.map((sentence) => `machine: ${sentence}`));
        return { passed: missing.length === 0 ? 1 : 0, failed: missing.length };
      }
      case 'script':
        return this.#count(await runScript(step.name));
      case 'program':
        return this.#count(await runProgram(step.file, step.args), step.name);
      case 'tests': {
        const why = await step.missing?.();
        if (why === undefined) return await this.#runFiles(step);
        if (!this.#isGate) return this.#fail(`${step.name}: ${why}`);
        this.#notRun.push(`${step.name}: ${why}`);
        return { passed: 0, failed: 0 };
      }
    }
  }

  async #runFiles(
    step: Step & { readonly kind: 'tests' },
  ): Promise<{ readonly passed: number; readonly failed: number }> {
    const files = selectFiles(step.files, step.except);
    if (files.length === 0) return this.#fail(`${step.name}: no file matches`);
    const { passed, failed, failures, skipped } = await runFiles(files, step.atOnce);
    this.#notRun.push(...skipped);
    if (!this.#isGate) {
      this.#failures.push(...failures.map(failureLine));
      return { passed, failed };
    }
    for (const failure of failures) {
      if (mayRetry(failure)) this.#suspects.push(failure);
      else this.#failures.push(`${failureLine(failure)} (never run again)`);
    }
    return { passed, failed };
  }

  #count(
    {
      passed,
      failed,
      failures,
    }: { readonly passed: number; readonly failed: number; readonly failures: readonly string[] },
    name?: string,
  ): { readonly passed: number; readonly failed: number } {
    this.#failures.push(...failures.map((line) => (name === undefined ? line : `${name}: ${line}`)));
    return { passed, failed };
  }

  #fail(line: string): { readonly passed: number; readonly failed: number } {
    console.error(line);
    this.#failures.push(line);
    return { passed: 0, failed: 1 };
  }

  /** Runs files once more, alone, whose failed tests allow it. A file that passes is flaky, and its failures count no longer. */
  async retry(): Promise<void> {
    const hard = new Set(this.#failures);
    const files = [...new Set(this.#suspects.map(({ file }) => file))];
    if (files.length === 0) return;
    if (files.length > MAX_RETRIED || hard.size > 0) {
      this.#failures.push(...this.#suspects.map(failureLine));
      return;
    }
    console.log('\n── once more, alone');
    const began = performance.now();
    let stillFailed = 0;
    for (const file of files) {
      const before = this.#suspects.filter((failure) => failure.file === file);
      const load = this.#load.short();
      const { failures, passed } = await runFiles([file], 1);
      if (failures.length === 0 && passed > 0) {
        this.#flaky.push(...before.map((failure) => flakyLine(failure, load)));
      } else {
        stillFailed += Math.max(1, failures.length);
        this.#failures.push(...(failures.length > 0 ? failures : before).map((each) => `${failureLine(each)} (twice)`));
      }
    }
    const minutes = (performance.now() - began) / 60_000;
    // The steps counted these failures: a file that passed now counts as passed.
    for (const [n, step] of this.steps.entries()) {
      if (step.failed > 0) this.steps[n] = { ...step, failed: 0 };
    }
    this.steps.push({
      name: 'once more',
      budgetMinutes: 0,
      minutes,
      passed: files.length - stillFailed,
      failed: stillFailed,
    });
  }

  /** Adds a step that failed or passed by one check. */
  check(name: string, problems: readonly string[]): void {
    this.#failures.push(...problems.map((problem) => `${name}: ${problem}`));
    const passed = problems.length === 0 ? 1 : 0;
    this.steps.push({ name, budgetMinutes: 0, minutes: 0, passed, failed: problems.length });
  }
}

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
  if (isFull) process.env['LINKSPAN_SEED'] ??= String(Date.now() % 2 ** 31);
  process.env['LINKSPAN_SEED'] ??= '1';
  if (isFull) process.env['LINKSPAN_FULL'] = '1';
  console.log(`seed ${process.env['LINKSPAN_SEED']} (LINKSPAN_SEED)`);
  const run = new Run(isGate);
  let current = '';
  const deadline = setTimeout(() => {
    console.error(endLines(run.outcome).join('\n'));
    console.error(`"${current}" has not ended after ${RUN_MS / 60_000} minutes of the run`);
    void sweep().finally(() => process.exit(1));
  }, RUN_MS).unref();
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
