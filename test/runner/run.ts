/** A run of the tests: performs steps, runs failed files of the gate once more, and collects what it found. */
import { lacks, MachineLoad } from './machine.ts';
import { runProgram, runScript } from './program.ts';
import { failureLine, flakyLine, type RunOutcome, type StepOutcome } from './report.ts';
import type { Step } from './steps.ts';
import { mayRetry } from './tags.ts';
import { type FailedTest, runFiles, selectFiles } from './test-files.ts';

/** With more failed files, the machine or the change is the cause, and none runs again. */
const MAX_RETRIED = 3;

/** A run while it goes on. */
export class Run {
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
