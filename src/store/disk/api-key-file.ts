import { isCode } from '../../thrown.ts';
import { jsonOf } from '../../json/record.ts';
import { realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { COMMAND } from '../../command-name.ts';
import { StartError } from '../../errors.ts';
import { inSlices } from '../../work-turn.ts';
import { changedKeys, type KeyChange, MAX_KEYS, type StoredKey, storedKeySchema } from '../api-key-store.ts';
import { lockFile } from './file-lock.ts';
import { ownUser, writeFault } from './path-fault.ts';
import { readOwnFile, REFUSED_MODE } from './own-file.ts';
import { makeStateDir, replaceFile, statOf } from './state-file.ts';

/** About 600 bytes for each of {@link MAX_KEYS}. */
const LIMIT_BYTES = 64 * 1_048_576;

const FILE = z.strictObject({
  version: z.literal(1),
  keys: z.array(z.unknown()).max(MAX_KEYS),
});

/**
 * Reads a key file, and serves others meanwhile.
 *
 * @param former the keys of the last reading. Unchanged ones are the same objects, and cost little.
 * @throws {StartError} with a message for the operator that quotes nothing of the file. It does not exist, other users can read or write
 *   it, it is no ordinary file or larger than 64 MiB. Or an entry is wrong or repeated.
 */
export async function readKeyFile(path: string, former: readonly StoredKey[] = []): Promise<readonly StoredKey[]> {
  const content = jsonOf(await readText(path));
  if (content === undefined) throw new StartError(`${path} is not a key file: it is no valid JSON`);
  const file = checked(path, FILE, content, []);
  const known = new Map(former.map((key) => [key.sha256, key]));
  const keys = new Map<string, StoredKey>();
  await inSlices(file.keys.entries(), ([index, entry]) => {
    const before = known.get(String(Object(entry).sha256));
    const isSame = before !== undefined && isDeepStrictEqual(before, entry);
    const key = isSame ? before : checked(path, storedKeySchema, entry, ['keys', index]);
    if (keys.has(key.sha256))
      throw new StartError(`${path} has two entries with the same hash, the later one at keys.${index}`);
    keys.set(key.sha256, key);
  });
  return [...keys.values()];
}

/** @throws {StartError} if a part of the file is wrong. */
function checked<Value>(path: string, schema: z.ZodType<Value>, value: unknown, at: readonly PropertyKey[]): Value {
  const { data, error } = schema.safeParse(value);
  if (data !== undefined) return data;
  const [issue] = error?.issues ?? [];
  const place = [...at, ...(issue?.path ?? [])];
  const where = place.length === 0 ? '' : ` at ${place.map(String).join('.')}`;
  throw new StartError(`${path} is not a key file${where}: ${issue?.message ?? 'invalid'}`);
}

async function readText(path: string): Promise<string> {
  const text = await readOwnFile(path, {
    maxBytes: LIMIT_BYTES,
    refusedMode: REFUSED_MODE.writtenByGroupOrUsedByAll,
    mayBeLink: true,
    remedy: ({ isFile }) =>
      isFile
        ? `Check its keys, and run: chmod 600 ${path}`
        : `Name a file; this makes one: ${COMMAND} key create <name>`,
  });
  if (text === undefined) throw new StartError(`${path} does not exist; make it with: ${COMMAND} key create <name>`);
  return text;
}

/**
 * Changes a key file, or makes it. Readers see the old or the new content. Two changes at once run one after the other.
 *
 * @throws {StartError} with a message for the operator, if the file cannot be read, used or written.
 */
export async function changeKeyFile(path: string, decide: (keys: readonly StoredKey[]) => KeyChange): Promise<void> {
  // A symbolic link stays, and its target is replaced.
  const target = await realpath(path).catch(() => path);
  try {
    await changeFile(target, decide);
  } catch (thrown) {
    const fault = writeFault(thrown, 'its directory does not exist and cannot be made');
    if (fault === undefined) throw thrown;
    const message = `the key file ${target} cannot be changed: ${fault}. Name a file that ${ownUser()} can write`;
    throw new StartError(message, { cause: thrown });
  }
}

async function changeFile(target: string, decide: (keys: readonly StoredKey[]) => KeyChange): Promise<void> {
  await makeStateDir(dirname(target));
  await using _lock = await lockFile(`${target}.lock`);
  const found = await statOf(target);
  const before = found === undefined ? [] : await readKeyFile(target);
  const after = changedKeys(before, decide(before));
  if (after.length > MAX_KEYS) throw new StartError(`a key file holds at most ${MAX_KEYS} keys`);
  const lines = after.map((key, index) => `    ${JSON.stringify(key)}${index + 1 < after.length ? ',' : ''}\n`);
  try {
    // The gateway may be another user, that reads the file by its group.
    await replaceFile(target, ['{\n  "version": 1,\n  "keys": [\n', ...lines, '  ]\n}\n'], found);
  } catch (thrown) {
    if (found === undefined || !isCode(thrown, 'EPERM')) throw thrown;
    throw new StartError(
      `${target} is unchanged: this user cannot keep its group; run the command as root or as a member of the group`,
      {
        cause: thrown,
      },
    );
  }
}

const USES = z.record(z.string(), z.number());

/** Returns the path of the times of last use, in a state directory. */
function usesFile(stateDir: string): string {
  return join(stateDir, 'api-key-use.json');
}

/** Reads the times of last use of API keys, by id; ms since the epoch. Empty if there are none, or they cannot be read. */
export async function readKeyUses(stateDir: string): Promise<ReadonlyMap<string, number>> {
  try {
    const text = await readOwnFile(usesFile(stateDir), {
      maxBytes: LIMIT_BYTES,
      refusedMode: REFUSED_MODE.writtenByAll,
      remedy: 'The next write replaces it.',
    });
    return new Map(Object.entries(USES.safeParse(jsonOf(text ?? '')).data ?? {}));
  } catch {
    return new Map();
  }
}

/**
 * Adds times of last use of API keys, and removes those of all keys but the known ones. Workers do so at the same time, so the latest time of a key counts,
 * and changes run one after the other.
 *
 * @throws {Error} if the file cannot be written.
 */
export async function addKeyUses(
  stateDir: string,
  uses: ReadonlyMap<string, number>,
  known: ReadonlySet<string>,
): Promise<void> {
  await makeStateDir(stateDir);
  const path = usesFile(stateDir);
  await using _lock = await lockFile(`${path}.lock`);
  const all = new Map(await readKeyUses(stateDir));
  for (const [id, usedMs] of uses) all.set(id, Math.max(usedMs, all.get(id) ?? 0));
  await replaceFile(path, [JSON.stringify(Object.fromEntries([...all].filter(([id]) => known.has(id))))]);
}
