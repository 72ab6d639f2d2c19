import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { StartError } from '../../errors.ts';
import { readOwnFile, REFUSED_MODE } from './own-file.ts';
import { createFile, makeStateDir } from './state-file.ts';

const FILE = 'first-key.sha256';
const FILE_LIMIT_BYTES = 1_024;
const KEY_BYTES = 32;

/**
 * Returns the SHA-256 of the first key, from the state directory. If there is none, makes a key, stores its hash, and passes the
 * key itself to `show`. It is shown only that once.
 *
 * @throws {StartError} if the file cannot be read or written, or another user could have written it.
 */
export async function firstKeyHash(stateDir: string, show: (key: string, file: string) => void): Promise<string> {
  const file = join(stateDir, FILE);
  try {
    return (await readHash(file)) ?? (await makeKey(stateDir, file, show));
  } catch (thrown) {
    if (thrown instanceof StartError || !(thrown instanceof Error)) throw thrown;
    throw new StartError(`the hash of the first API key cannot be kept in ${file}: ${thrown.message}`, thrown);
  }
}

/**
 * Returns the SHA-256 of the first key without making one, or undefined if there is none yet.
 *
 * @throws {StartError} if the file holds something else, or another user could have written it.
 */
export async function keptFirstKeyHash(stateDir: string): Promise<string | undefined> {
  return await readHash(join(stateDir, FILE));
}

async function readHash(file: string): Promise<string | undefined> {
  const text = await readOwnFile(file, {
    maxBytes: FILE_LIMIT_BYTES,
    refusedMode: REFUSED_MODE.writtenByAll,
    remedy: 'Who wrote it has a key of this gateway. Remove it, and the next start makes a new API key.',
  });
  if (text === undefined || /^[\da-f]{64}$/.test(text.trim())) return text?.trim();
  throw new StartError(`${file} does not hold a SHA-256; remove it, and the next start makes a new API key`);
}

async function makeKey(stateDir: string, file: string, show: (key: string, file: string) => void): Promise<string> {
  const key = randomBytes(KEY_BYTES).toString('base64url');
  const hash = createHash('sha256').update(key).digest('hex');
  await makeStateDir(stateDir);
  if (!(await createFile(file, `${hash}\n`))) {
    // Another process has made a key in the meantime. That key is valid then.
    const other = await readHash(file);
    if (other !== undefined) return other;
    throw new Error('it was made and removed again at the same time');
  }
  show(key, file);
  return hash;
}
