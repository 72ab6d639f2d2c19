import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Ignored by git, and gone with `node_modules`. */
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/linkspan-peers', import.meta.url));

/**
 * Returns a folder that `make` has filled, from an earlier run where the same content was made before.
 *
 * @param content everything that decides what `make` does: lock files, sources, versions.
 * @throws {Error} that names `what`, where `make` fails. Nothing is left in the cache then.
 */
export async function cached(
  what: string,
  content: readonly string[],
  make: (dir: string) => Promise<void>,
): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 16);
  const dir = join(CACHE, `${what}-${hash}`);
  if (existsSync(dir)) return dir;

  const began = performance.now();
  console.error(`peers: installing ${what} into ${dir}`);
  // Test files run side by side: each makes its own, and the first to finish gives it its name.
  const draft = `${dir}.${process.pid}`;
  await mkdir(draft, { recursive: true });
  try {
    await make(draft);
    await rename(draft, dir);
  } catch (thrown) {
    await rm(draft, { recursive: true, force: true });
    if (!existsSync(dir)) throw new Error(`the test peer ${what} cannot be installed`, { cause: thrown });
  }
  console.error(`peers: ${what} installed in ${((performance.now() - began) / 1000).toFixed(1)} s`);
  return dir;
}
