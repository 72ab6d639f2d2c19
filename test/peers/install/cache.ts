import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of installed packages. It outlives `npm ci`, and all checkouts share it. */
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'linkspan-peers');

/** A folder whose programs find the packages of this checkout. Git ignores it, and `npm ci` removes it. */
export const BESIDE_PACKAGES = fileURLToPath(new URL('../../../node_modules/.cache/linkspan-peers', import.meta.url));

/** Registries fail now and then, so each installation is tried this often. */
const TRIES = 3;
/** No installation begins this long after the first one of the process. */
const ALL_MS = 600_000;

let firstBeganMs: number | undefined;

/**
 * Returns a folder that `make` has filled, possibly in an earlier run with the same content.
 *
 * @param content all inputs of `make`: lock files, sources, versions.
 * @param make runs again in a new folder if it fails.
 * @param tries after so many failures it throws.
 * @throws {Error} that names `what` and the reason, if every try fails. Nothing is left in the cache then.
 */
export async function cached(
  what: string,
  content: readonly string[],
  make: (dir: string) => Promise<void>,
  cache = CACHE,
  tries = TRIES,
): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 16);
  const dir = join(cache, `${what}-${hash}`);
  const began = performance.now();
  const late = () => performance.now() - (firstBeganMs ?? began) > ALL_MS;
  for (let attempt = 1; !existsSync(dir); attempt++) {
    if (late())
      throw new Error(`the test peers are not installed after ${ALL_MS / 60_000} minutes: ${what} is missing`);
    firstBeganMs ??= began;
    console.error(`peers: installing ${what} into ${dir}`);
    // Simultaneous processes each make a folder of their own, and the first to finish renames it.
    const draft = `${dir}.${process.pid}`;
    await rm(draft, { recursive: true, force: true });
    await mkdir(draft, { recursive: true });
    try {
      await make(draft);
      await rename(draft, dir);
      console.error(`peers: ${what} installed in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    } catch (thrown) {
      await rm(draft, { recursive: true, force: true });
      if (existsSync(dir)) return dir;
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      if (attempt === tries)
        throw new Error(
          `the test peer ${what} cannot be installed in ${tries} ${tries === 1 ? 'try' : 'tries'}: ${why}`,
          { cause: thrown },
        );
      console.error(`peers: ${what} is tried again: ${why}`);
    }
  }
  return dir;
}
