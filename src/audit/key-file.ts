import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { StartError } from '../errors.ts';
import { type AllowedOwners, readOwnFile, REFUSED_MODE } from '../store/disk/own-file.ts';
import { createFile, makeStateDir } from '../store/disk/state-file.ts';

const NAME = 'audit.key';
const KEY_BYTES = 32;
const FILE_LIMIT_BYTES = 1_024;
const FORM = /^[A-Za-z0-9+/_-]{43}=?$/;

/** Returns the path of the key file in a state directory. */
export function keyFileIn(stateDir: string): string {
  return join(stateDir, NAME);
}

/** Returns the secret of a state directory in base64url. Makes one at the first start. @throws {StartError} as {@link readKeyFile}. */
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
 * @param owners `any-for-root` for a file that an operator names on the command line.
 * @throws {StartError} with a message for the operator, if other users can use the file, or it is not a key.
 */
export async function readKeyFile(path: string, owners: AllowedOwners = 'self'): Promise<string | undefined> {
  const text = await readOwnFile(path, {
    maxBytes: FILE_LIMIT_BYTES,
    refusedMode: REFUSED_MODE.usedByAll,
    owners,
    mayBeLink: owners === 'any-for-root',
    remedy: ({ isFile }) =>
      isFile ? `Who has the key can forge audit records. Run: chmod 600 ${path}` : 'Move it away, or name a file.',
  });
  if (text === undefined) return undefined;
  const key = text.trim();
  if (!FORM.test(key)) throw new StartError(`${path} is not a key of 32 bytes in base64. Restore it from a backup.`);
  return Buffer.from(key, 'base64').toString('base64url');
}
