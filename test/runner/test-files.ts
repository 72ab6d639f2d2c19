/** Runs test files, each in a process of its own. */
import { globSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { finished } from 'node:stream/promises';
import { run as runTests } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import { tagsAt } from './tags.ts';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const WATCHDOG = new URL('../support/watchdog.ts', import.meta.url).href;
/** A test that hangs fails after this time, and so is named. */
const TEST_MS = 120_000;
const FILE_MS = 600_000;
/** Output of a file that is printed if the file fails. */
const MAX_OUTPUT = 64 * 1024;

/** A failed test. */
export interface FailedTest {
  /** The file that ran, below the root. */
  readonly file: string;
  /** The place of the test: `test/x.test.ts:12`. It differs from `file` for tests of a contract. */
  readonly place: string;
  readonly name: string;
  /** The numbers of requirements that stand above the test. */
  readonly tags: readonly string[];
  /** The first line of the error. */
  readonly error: string;
  readonly seconds: number;
}

/** The outcome of some test files. */
export interface FilesOutcome {
  readonly passed: number;
  readonly failed: number;
  readonly failures: readonly FailedTest[];
  /** A line for each skipped test, with its reason. */
  readonly skipped: readonly string[];
}

/** Returns the paths below the root of the files that match `globs` and none of `except`. */
export function selectFiles(globs: readonly string[], except: readonly string[] = []): string[] {
  return globSync([...globs], { cwd: ROOT, exclude: [...except] }).toSorted();
}

/**
 * Runs test files and prints a line for each, and the errors of those that fail.
 *
 * @param files paths below the root.
 * @param atOnce files that run at the same time.
 */
export async function runFiles(files: readonly string[], atOnce: number): Promise<FilesOutcome> {
  const report = new FileReports();
  if (files.length === 0) return report.finish();
  const stream = runTests({
    files: files.map((file) => join(ROOT, file)),
    concurrency: atOnce,
    timeout: FILE_MS,
    isolation: 'process',
    execArgv: ['--import', WATCHDOG, `--test-timeout=${TEST_MS}`],
  });
  stream.on('test:pass', (event) => report.onPass(event));
  stream.on('test:fail', (event) => report.onFail(event));
  stream.on('test:stdout', ({ file, message }) => report.onOutput(file, message));
  stream.on('test:stderr', ({ file, message }) => report.onOutput(file, message));
  stream.on('test:summary', ({ file, counts, duration_ms: ms }) => {
    if (file !== undefined) report.onFileEnd(relative(ROOT, file), counts, ms);
  });
  stream.resume();
  await finished(stream);
  return report.finish();
}

interface TestEvent {
  readonly name: string;
  readonly file?: string | undefined;
  readonly line?: number | undefined;
  readonly skip?: string | boolean | undefined;
  readonly details: { readonly duration_ms: number };
}

interface FailEvent extends TestEvent {
  readonly details: { readonly duration_ms: number; readonly error: Error };
}

interface Counts {
  readonly passed: number;
  readonly tests: number;
  readonly skipped: number;
}

/** Collects the events of files. Those of one file come together, and end with its summary. */
class FileReports {
  #passed = 0;
  #failed = 0;
  readonly #failures: FailedTest[] = [];
  readonly #skipped: string[] = [];
  readonly #output = new Map<string, string>();
  /** Events of the file whose summary has not come. */
  #fails: FailEvent[] = [];

  /** Returns the outcome. Files that ended without a summary, such as those that cannot be loaded, have failed. */
  finish(): FilesOutcome {
    for (const event of this.#fails.filter(isCause)) {
      const path = event.file ?? event.name;
      const output = this.#output.get(path) ?? '';
      const reason = /^\w*Error\b.*/m.exec(output)?.[0];
      console.log(`✖ ${relative(ROOT, path)}\n${output}`);
      this.#add(relative(ROOT, path), event, reason);
      this.#failed += 1;
    }
    this.#fails = [];
    return { passed: this.#passed, failed: this.#failed, failures: this.#failures, skipped: this.#skipped };
  }

  onPass({ name, file, line, skip }: TestEvent): void {
    if (skip === undefined || skip === false) return;
    const why = typeof skip === 'string' ? `: ${skip}` : '';
    this.#skipped.push(`${relative(ROOT, file ?? '')}:${line} › ${name}${why}`);
  }

  onFail(event: FailEvent): void {
    this.#fails.push(event);
  }

  onOutput(file: string, text: string): void {
    this.#output.set(file, `${this.#output.get(file) ?? ''}${text}`.slice(-MAX_OUTPUT));
  }

  onFileEnd(file: string, { passed, tests, skipped }: Counts, ms: number): void {
    const path = join(ROOT, file);
    const causes = this.#fails.filter(isCause);
    for (const event of causes) this.#add(file, event);
    const failed = Math.max(tests - passed - skipped, causes.length);
    this.#passed += passed;
    this.#failed += failed;
    const seconds = (ms / 1_000).toFixed(1).padStart(6);
    const counts = [
      `${passed} passed`,
      ...(failed > 0 ? [`${failed} failed`] : []),
      ...(skipped > 0 ? [`${skipped} skipped`] : []),
    ];
    console.log(`${failed === 0 ? '✔' : '✖'} ${seconds} s  ${file}  ${counts.join(', ')}`);
    if (failed > 0) console.log(this.#output.get(path) ?? '');
    for (const { name, details } of causes) console.log(`✖ ${name}\n${inspect(causeOf(details.error))}\n`);
    this.#output.delete(path);
    this.#fails = [];
  }

  #add(file: string, { name, file: path, line, details }: FailEvent, reason?: string): void {
    const place = path === undefined ? file : `${relative(ROOT, path)}:${line ?? 1}`;
    const lines = (reason ?? causeOf(details.error).message).split('\n');
    const error = lines
      .map((text) => text.trim())
      .filter((text) => text !== '')
      .slice(0, 3)
      .join(' ');
    const tags = path === undefined ? [] : tagsAt(readFileSync(path, 'utf8'), line ?? 1);
    this.#failures.push({ file, place, name, tags, error, seconds: details.duration_ms / 1_000 });
  }
}

/** Returns whether a failure is one by itself, and not that of the tests inside. */
function isCause({ details }: FailEvent): boolean {
  return !('failureType' in details.error && details.error.failureType === 'subtestsFailed');
}

/** Returns the error that a test threw. */
function causeOf(error: Error): Error {
  return error.cause instanceof Error ? error.cause : error;
}
