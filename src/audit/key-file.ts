import { randomBytes } from 'node:crypto';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { createFile, isCode, makeStateDir } from '../store/disk/state-file.ts';

const NAME = 'audit.key';
const KEY_BYTES = 32;
const FORM = /^[A-Za-z0-9+/_-]{43}=?$/;

/** Returns the path of the key file in a state directory. */
export function keyFileIn(stateDir: string): string {
  return join(stateDir, NAME);
}

/** Returns the secret of a state directory in base64url. Makes one at the first start. @throws {Error} as {@link readKeyFile}. */
export async function openKeyFile(stateDir: string): Promise<string> {
  await makeStateDir(stateDir);
  const path = keyFileIn(stateDir);
  const made = randomBytes(KEY_BYTES).toString('base64url');
  const found = await readKeyFile(path);
  if (found !== undefined) return found;
  // Another process may make the file at the same time.
  await createFile(path, `${made}\n`);
  return (await readKeyFile(path)) ?? made;
}

/**
 * Returns the secret in a key file in base64url; undefined if there is no file.
 *
 * @throws {Error} with a message for the operator, if other users can read the file, or it is not a key.
 */
export async function readKeyFile(path: string): Promise<string | undefined> {
  let text: string;
  try {
    const file = await open(path, 'r');
    try {
      const { mode } = await file.stat();
      if ((mode & 0o007) !== 0 && process.platform !== 'win32') {
        throw new Error(
          `${path} is open to every user of this machine, who could forge audit records. Run: chmod 600 ${path}`,
        );
      }
      text = (await file.readFile('utf8')).trim();
    } finally {
      await file.close();
    }
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT')) return undefined;
    throw thrown;
  }
  if (!FORM.test(text)) throw new Error(`${path} is not a key of 32 bytes in base64. Restore it from a backup.`);
  return Buffer.from(text, 'base64').toString('base64url');
}
