import { constants } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isCode } from './state-file.ts';

/** Users besides root and the reading one whose files are read: none, or any if root reads. */
export type AllowedOwners = 'self' | 'any-for-root';

/**
 * Returns the text of a file that only this user or root can have written; undefined if there is none.
 *
 * @param owners `any-for-root`: root reads a file of another user too, if no third user can have written it. Only for a
 *   file whose place the user of the program has named, and whose text cannot start a program.
 * @throws {Error} with a message for the operator, if the file is too large, cannot be read, or others can write it.
 */
export async function readOwnFile(
  path: string,
  limitBytes: number,
  owners: AllowedOwners = 'self',
): Promise<string | undefined> {
  try {
    // Without blocking, because a pipe in the place of the file would stop the program.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { mode, uid, size } = await statOf(file, path);
      if (isWritableByOthers(mode) || !(await isTrusted(path, uid, owners))) {
        throw new Error(`${path} could have been written by another user, so it is not used. ${nextStep(uid)}`);
      }
      if (size > limitBytes) throw new Error(`${path} is larger than ${limitBytes} bytes, so it is not used.`);
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT') || isCode(thrown, 'ENOTDIR')) return undefined;
    throw thrown;
  }
}

async function statOf(file: FileHandle, path: string): Promise<{ mode: number; uid: number; size: number }> {
  const found = await file.stat();
  if (!found.isFile()) throw new Error(`${path} is no file, so it is not used.`);
  return found;
}

function isWritableByOthers(mode: number): boolean {
  return process.platform !== 'win32' && (mode & 0o022) !== 0;
}

async function isTrusted(path: string, uid: number, owners: AllowedOwners): Promise<boolean> {
  const self = process.geteuid?.();
  if (self === undefined || uid === self || uid === 0) return true;
  if (self !== 0 || owners === 'self') return false;
  // A third user who can write the directory could have put a file of this owner there, by a hard link or by renaming.
  const dir = await stat(dirname(path));
  return (dir.uid === uid || dir.uid === 0) && !isWritableByOthers(dir.mode);
}

function nextStep(uid: number): string {
  const isOthersForRoot = process.geteuid?.() === 0 && uid !== 0;
  return isOthersForRoot
    ? 'Name its directory with --state-dir, or run the command as its user.'
    : 'Restart the gateway.';
}

/** Returns the value of a JSON text; undefined if it is none. The parser's message would quote the text, which may be secret. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
