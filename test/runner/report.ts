/** What a run prints at its end, and the page that a full run writes. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execFileSync } from 'node:child_process';
import { ROOT, type FailedTest } from './test-files.ts';

/** The outcome of a step. */
export interface StepOutcome {
  readonly name: string;
  readonly budgetMinutes: number;
  readonly minutes: number;
  readonly passed: number;
  readonly failed: number;
}

/** All that a run found. */
export interface RunOutcome {
  readonly steps: readonly StepOutcome[];
  readonly failures: readonly string[];
  /** Files that passed when they ran once more. */
  readonly flaky: readonly string[];
  /** Tests and steps that did not run, with the reason. */
  readonly notRun: readonly string[];
  readonly machine: string;
}

/** The end of a run has at most 60 lines. */
const MAX_FAILURES = 20;
const MAX_OTHERS = 6;
const MAX_CHARACTERS = 240;

/** Returns the line of a failed test: place, name, first line of the error, duration. */
export function failureLine({ place, name, error, seconds }: FailedTest): string {
  return cut(`${place} › ${name}: ${error} (${seconds.toFixed(1)} s)`);
}

/** Returns the line of a file that failed, and passed when it ran once more. */
export function flakyLine({ file, name, error }: FailedTest, load: string): string {
  return cut(`FLAKY ${file} › ${name}: ${error} (${load})`);
}

/** Returns the sum over all steps. */
export function sum(steps: readonly StepOutcome[]): { readonly passed: number; readonly failed: number } {
  return {
    passed: steps.reduce((all, { passed }) => all + passed, 0),
    failed: steps.reduce((all, { failed }) => all + failed, 0),
  };
}

/** Returns the end of a run, at most 60 lines: failures, the machine, minutes by step, counts. */
export function endLines({ steps, failures, flaky, notRun, machine }: RunOutcome): string[] {
  const { passed, failed } = sum(steps);
  const all = steps.reduce((total, { minutes }) => total + minutes, 0);
  const budget = steps.reduce((total, { budgetMinutes }) => total + budgetMinutes, 0);
  return [
    ...(failures.length > 0 ? ['failed:', ...some(failures, MAX_FAILURES)] : []),
    ...some(flaky, MAX_OTHERS),
    ...(notRun.length > 0 ? ['not run:', ...some(notRun, MAX_OTHERS)] : []),
    '',
    machine,
    `${'step'.padEnd(24)}minutes  of`,
    ...steps.map(({ name, minutes, budgetMinutes, passed: good, failed: bad }) => {
      const times = `${minutes.toFixed(1).padStart(7)}${budgetMinutes.toFixed(1).padStart(5)}`;
      return `${name.padEnd(24)}${times}  ${good} passed${bad > 0 ? `, ${bad} failed` : ''}`;
    }),
    `${'all'.padEnd(24)}${all.toFixed(1).padStart(7)}${budget.toFixed(1).padStart(5)}`,
    '',
    `${passed} passed, ${failed} failed`,
  ];
}

/** Returns the page `docs/test-report.md` about a full run. */
export function reportPage(outcome: RunOutcome, date: Date): string {
  const { passed, failed } = sum(outcome.steps);
  const list = (title: string, lines: readonly string[]) =>
    lines.length === 0 ? [] : ['', `## ${title}`, '', ...lines.map((line) => `- ${line.replaceAll(/[<>|]/g, ' ')}`)];
  return [
    '# Test report',
    '',
    '`npm run test:full` writes this page. [testing.md](testing.md) describes the parts.',
    '',
    `- Date: ${date.toISOString().slice(0, 16).replace('T', ' ')} UTC`,
    `- Commit: \`${commit()}\``,
    `- ${outcome.machine.replace('machine:', 'Machine:')}`,
    `- ${passed} passed, ${failed} failed, ${outcome.flaky.length} flaky`,
    '',
    '| Part | Minutes | Passed | Failed |',
    '| --- | --- | --- | --- |',
    ...outcome.steps.map(
      ({ name, minutes, passed: good, failed: bad }) => `| ${name} | ${minutes.toFixed(1)} | ${good} | ${bad} |`,
    ),
    ...list('Failed', outcome.failures),
    ...list('Flaky', outcome.flaky),
    ...list('Not run', outcome.notRun),
    '',
  ].join('\n');
}

function commit(): string {
  const git = (...args: readonly string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  try {
    return `${git('rev-parse', '--short=10', 'HEAD')}${git('status', '--porcelain') === '' ? '' : ' with changes'}`;
  } catch {
    return `none: a copy without history, version ${version()}`;
  }
}

function version(): string {
  return String(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version);
}

function some(lines: readonly string[], most: number): string[] {
  if (lines.length <= most) return [...lines];
  return [...lines.slice(0, most), `… and ${lines.length - most} more`];
}

function cut(line: string): string {
  return line.length <= MAX_CHARACTERS ? line : `${line.slice(0, MAX_CHARACTERS)}…`;
}
