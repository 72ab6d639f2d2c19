/** The numbers of requirements that a test proves. They stand in comments above it, or are the beginning of its name. */
import { NUMBER } from '../support/test-name.ts';

const COMMENT = /^\s*\/\//;
const NUMBERS = new RegExp(String.raw`\b${NUMBER}\b`, 'g');

/**
 * Returns the numbers in the comment lines directly above a line of a source, and in the line itself.
 *
 * @param line counted from 1.
 */
export function tagsAt(source: string, line: number): string[] {
  const lines = source.split('\n');
  let first = line - 1;
  while (COMMENT.test(lines[first - 1] ?? '')) first--;
  return lines.slice(first, line).flatMap((text) => text.match(NUMBERS) ?? []);
}

/** Numbers whose tests are never run again: one failure is evidence of a leak, a loss or a doubled call. */
const NEVER = /^(?:SEC-\d+|N-20|N-31|N-65|N-67|X-022|S-001|G2|R11)$/;

/** Files whose tests are never run again, for the same reason. */
const NEVER_FILES =
  /(?:isolation|correlation|collisions|cross-principal|credential-sockets|doubled-responses)\.test\.ts$/;

/** Returns whether a failed test may run once more. */
export function mayRetry({ file, tags }: { readonly file: string; readonly tags: readonly string[] }): boolean {
  return !NEVER_FILES.test(file) && !tags.some((tag) => NEVER.test(tag));
}
