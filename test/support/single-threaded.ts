import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { PATIENCE_MS } from './patience.ts';

/**
 * Runs a file of `test/fixtures/heap` in a process of its own, in which V8 collects and compiles at the same points each time.
 *
 * @returns the value that the file prints as JSON.
 */
export function runSingleThreaded(file: string): unknown {
  const path = fileURLToPath(new URL(`../fixtures/heap/${file}`, import.meta.url));
  const options = { encoding: 'utf8', timeout: 2 * PATIENCE_MS } as const;
  const flags = ['--single-threaded', '--min-semi-space-size=1', '--max-semi-space-size=1'];
  return JSON.parse(execFileSync(process.execPath, [...flags, path], options));
}

const LEFT = z.object({ removedBytes: z.number(), leftBytes: z.number() });

/** Returns the bytes that a file has removed, and those of them that a collection of young objects leaves. */
export function measureLeftBytes(file: string): z.infer<typeof LEFT> {
  return LEFT.parse(runSingleThreaded(file));
}
