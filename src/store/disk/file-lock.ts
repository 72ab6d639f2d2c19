import { rm } from 'node:fs/promises';
import type { Stats } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../errors.ts';
import { createFile, statOf } from './state-file.ts';

/** The time that a command waits for another one, and after which a lock of a killed one is removed. */
const WAIT_MS = 5_000;
const STALE_MS = 30_000;
const POLL_MS = 50;

/**
 * Creates a lock, which one command at a time holds. Disposing it removes it.
 *
 * @throws {StartError} if another command holds it for longer than 5 s.
 */
export async function lockFile(path: string): Promise<AsyncDisposable> {
  const lateMs = performance.now() + WAIT_MS;
  while (!(await createFile(path, `${process.pid}\n`))) {
    const found = await statOf(path);
    const isStale = found !== undefined && Date.now() - found.mtimeMs > STALE_MS;
    if (isStale && (await removeLock(path, found))) continue;
    if (performance.now() > lateMs)
      throw new StartError(`another command changes the keys; if none does, remove ${path}`);
    await sleep(POLL_MS);
  }
  const own = await statOf(path);
  return { [Symbol.asyncDispose]: async () => void (own !== undefined && (await removeLock(path, own))) };
}

/**
 * Removes a lock, but not one that a later command has made since. Returns false if another command removes this one, or has done so.
 *
 * Only the command that creates the claim of a lock may remove the lock. So it stays the same between the look and the removal.
 */
export async function removeLock(path: string, { ino, mtimeMs }: Pick<Stats, 'ino' | 'mtimeMs'>): Promise<boolean> {
  const claim = `${path}.${ino}-${mtimeMs}`;
  if (!(await createFile(claim, ''))) return false;
  try {
    const now = await statOf(path);
    if (now?.ino !== ino || now.mtimeMs !== mtimeMs) return false;
    await rm(path, { force: true });
    return true;
  } finally {
    await rm(claim, { force: true });
  }
}
