import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * The program that tests start: the bundle of the package, which `test/run.ts` builds and names in `LINKSPAN_MAIN`, because it starts in
 * half the time; without it, the source.
 */
export const MAIN = resolve(
  process.env['LINKSPAN_MAIN'] ?? fileURLToPath(new URL('../../src/main.ts', import.meta.url)),
);
