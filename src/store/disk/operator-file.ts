import { systemCode } from '../../thrown.ts';
import { jsonOf } from '../../json/record.ts';
import { randomBytes } from 'node:crypto';
import { rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type AllowedOwners, readOwnFile, REFUSED_MODE } from './own-file.ts';
import { makeStateDir, replaceFile } from './state-file.ts';

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

export function newOperatorToken(): string {
  return randomBytes(TOKEN_BYTES).toString('base64url');
}

/** Writes the file of a running gateway to a directory, which is made if necessary. Only this user can read it. */
export async function writeOperatorFile(stateDir: string, content: OperatorFile): Promise<void> {
  await makeStateDir(stateDir);
  await replaceFile(join(stateDir, NAME), [`${JSON.stringify(content, undefined, 2)}\n`]);
}

/** Removes the file of this gateway, and its directory if that is empty then. Leaves the file of another gateway. */
export async function removeOperatorFile(stateDir: string, token: string): Promise<void> {
  const found = await readOperatorFile(stateDir).catch(() => undefined);
  if (found?.token !== token) return;
  await rm(join(stateDir, NAME), { force: true });
  try {
    await rmdir(stateDir);
  } catch (thrown) {
    // It is not empty, or it is a mount point.
    if (systemCode(thrown) === undefined) throw thrown;
  }
}

/**
 * Returns the file of the gateway that owns a state directory; undefined if there is none.
 *
 * @param owners the users besides this one whose file is read.
 * @throws {Error} with a message for the operator, if the file cannot be read, or others can write it.
 */
export async function readOperatorFile(
  stateDir: string,
  owners: AllowedOwners = 'self',
): Promise<OperatorFile | undefined> {
  const path = join(stateDir, NAME);
  const text = await readOwnFile(path, {
    maxBytes: FILE_LIMIT_BYTES,
    refusedMode: REFUSED_MODE.writtenByOthers,
    owners,
    remedy: nextStep,
  }).catch((thrown: unknown) => {
    const code = systemCode(thrown);
    if (code === undefined) throw thrown;
    const step = 'Run the command as the user of the gateway, or name another directory with --state-dir';
    throw new Error(`${path} cannot be read (${code}). ${step}`, { cause: thrown });
  });
  if (text === undefined) return undefined;
  const parsed = schema.safeParse(jsonOf(text));
  if (parsed.success) return parsed.data;
  throw new Error(`${path} is not the file of a running gateway. Restart the gateway, which writes a new one.`);
}

function nextStep({ uid, isFile }: { readonly uid: number; readonly isFile: boolean }): string {
  if (!isFile) return 'Remove it, and restart the gateway.';
  const isOthersForRoot = process.geteuid?.() === 0 && uid > 0;
  return isOthersForRoot
    ? 'Name its directory with --state-dir, or run the command as its user.'
    : 'Restart the gateway.';
}
