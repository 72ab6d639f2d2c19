import { randomBytes } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isCode, replaceFile } from './state-file.ts';

const NAME = 'operator.json';
const TOKEN_BYTES = 32;
const FILE_LIMIT_BYTES = 65_536;

const schema = z.object({
  /** The operator's port: `http://host:port`. */
  url: z.url(),
  /** The key of the admin API; new at each start. */
  token: z.string().min(1),
  pid: z.int(),
  version: z.string(),
  configFile: z.string(),
  startedAt: z.string(),
});

/** The address and key by which programs of this user reach a running gateway. */
export type OperatorFile = z.output<typeof schema>;

/** Returns a new key of the admin API. */
export function newOperatorToken(): string {
  return randomBytes(TOKEN_BYTES).toString('base64url');
}

/** Writes the file of a running gateway to its state directory. Only this user can read it. */
export async function writeOperatorFile(stateDir: string, content: OperatorFile): Promise<void> {
  await replaceFile(join(stateDir, NAME), [`${JSON.stringify(content, undefined, 2)}\n`]);
}

/** Removes the file of this gateway. Leaves the file of another one. */
export async function removeOperatorFile(stateDir: string, token: string): Promise<void> {
  const found = await readOperatorFile(stateDir).catch(() => undefined);
  if (found?.token === token) await rm(join(stateDir, NAME), { force: true });
}

/**
 * Returns the file of the gateway that owns a state directory; undefined if there is none.
 *
 * @throws {Error} with a message for the operator, if the file cannot be read, or others can write it.
 */
export async function readOperatorFile(stateDir: string): Promise<OperatorFile | undefined> {
  const path = join(stateDir, NAME);
  try {
    const file = await open(path, 'r');
    try {
      const { mode, uid, size } = await file.stat();
      const isForeign = process.getuid !== undefined && uid !== process.getuid() && uid !== 0;
      if (isForeign || (process.platform !== 'win32' && (mode & 0o022) !== 0)) {
        throw new Error(`${path} could have been written by another user, so it is not used. Restart the gateway.`);
      }
      const parsed = size > FILE_LIMIT_BYTES ? undefined : schema.safeParse(json(await file.readFile('utf8')));
      if (parsed?.success === true) return parsed.data;
      throw new Error(`${path} is not the file of a running gateway. Restart the gateway, which writes a new one.`);
    } finally {
      await file.close();
    }
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT') || isCode(thrown, 'ENOTDIR')) return undefined;
    throw thrown;
  }
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's message would quote the text, which is secret.
    return undefined;
  }
}
