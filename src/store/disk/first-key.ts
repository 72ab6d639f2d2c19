import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { StartError } from '../../errors.ts';
import { isCode } from './state-file.ts';

const FILE = 'first-key.sha256';
const KEY_BYTES = 32;

/**
 * Returns the SHA-256 of the first key, from the state directory. If there is none, makes a key, stores its hash, and passes the
 * key itself to `show`. It is shown only that once.
 *
 * @throws {StartError} if the file cannot be read or written.
 */
export function firstKeyHash(stateDir: string, show: (key: string, file: string) => void): string {
  const file = join(stateDir, FILE);
  try {
    return readHash(file) ?? makeKey(stateDir, file, show);
  } catch (thrown) {
    if (thrown instanceof StartError || !(thrown instanceof Error)) throw thrown;
    throw new StartError(`the hash of the first API key cannot be kept in ${file}: ${thrown.message}`, thrown);
  }
}

/**
 * Returns the SHA-256 of the first key without making one, or undefined if there is none yet.
 *
 * @throws {StartError} if the file holds something else.
 */
export function keptFirstKeyHash(stateDir: string): string | undefined {
  return readHash(join(stateDir, FILE));
}

/** Returns undefined if the file does not exist. @throws {StartError} if it holds something else. */
function readHash(file: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8').trim();
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT')) return undefined;
    throw thrown;
  }
  if (/^[\da-f]{64}$/.test(text)) return text;
  throw new StartError(`${file} does not hold a SHA-256; remove it, and the next start makes a new API key`);
}

function makeKey(stateDir: string, file: string, show: (key: string, file: string) => void): string {
  const key = randomBytes(KEY_BYTES).toString('base64url');
  const hash = createHash('sha256').update(key).digest('hex');
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const draft = `${file}.${randomUUID()}`;
  try {
    writeFileSync(draft, `${hash}\n`, { mode: 0o600, flush: true });
    // Fails if another process has made a key in the meantime; that key is valid then.
    linkSync(draft, file);
  } catch (thrown) {
    const other = isCode(thrown, 'EEXIST') ? readHash(file) : undefined;
    if (other === undefined) throw thrown;
    return other;
  } finally {
    rmSync(draft, { force: true });
  }
  show(key, file);
  return hash;
}
