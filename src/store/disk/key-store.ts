import { jsonOf } from '../../json/record.ts';
import { join } from 'node:path';
import { StartError } from '../../errors.ts';
import { z } from 'zod';
import { freshKey, type KeyStore, type KeyRecord, keyRecordSchema, withFreshKey } from '../key-store.ts';
import { readOwnFile, REFUSED_MODE } from './own-file.ts';
import { createFile, makeStateDir, replaceFile } from './state-file.ts';

/** A ring has a handful of keys of about 200 bytes. */
const FILE_LIMIT_BYTES = 1_048_576;

const ringSchema = z.strictObject({ keys: z.array(keyRecordSchema).min(1) });

function textOf(keys: readonly KeyRecord[]): string {
  return `${JSON.stringify({ keys }, undefined, 2)}\n`;
}

function parse(text: string, path: string): readonly KeyRecord[] {
  const { data, error } = ringSchema.safeParse(jsonOf(text));
  if (data !== undefined) return data.keys;
  const where = error.issues[0]?.path.join('.') ?? '';
  throw new StartError(
    `${path} is not a key ring${where && ` (look at ${where})`}. ` +
      'Restore it from a backup, or delete it: every session and cursor then ends.',
  );
}

/** Returns undefined if there is no file. */
async function find(path: string): Promise<readonly KeyRecord[] | undefined> {
  const text = await readOwnFile(path, {
    maxBytes: FILE_LIMIT_BYTES,
    refusedMode: REFUSED_MODE.usedByAll,
    remedy: ({ isFile }) =>
      isFile
        ? `Who has its keys can make session ids. Run: chmod 600 ${path} ` +
          '(or delete it to begin with new keys: every session then ends)'
        : 'Remove it to begin with new keys: every session then ends.',
  });
  return text === undefined ? undefined : parse(text, path);
}

interface DiskKeyStore extends KeyStore {
  /** Writes the keys that were read or added last, if the file is missing. */
  restore(): Promise<void>;
}

/** `read` throws {@link StartError} if other users can use the file, or it is missing or not a key ring. */
function diskKeyStore(path: string): DiskKeyStore {
  let known: readonly KeyRecord[] | undefined;
  const read = async () => {
    const keys = await find(path);
    if (keys === undefined) throw new StartError(`${path} does not exist any more. Restart the gateway.`);
    known = keys;
    return keys;
  };
  return {
    read,
    add: async (nowMs, graceMs) => {
      const keys = withFreshKey(await read(), nowMs, graceMs);
      await replaceFile(path, [textOf(keys)]);
      known = keys;
    },
    restore: async () => {
      if (known !== undefined) await createFile(path, textOf(known));
    },
  };
}

/** Creates the directory and the file if they are missing. Processes that do so at the same time end up with one file. */
export async function openDiskKeys(stateDir: string): Promise<DiskKeyStore> {
  await makeStateDir(stateDir);
  const path = join(stateDir, 'keys.json');
  if ((await find(path)) === undefined) await createFile(path, textOf([freshKey(Date.now())]));
  return diskKeyStore(path);
}

/** Returns the keys of a state directory, for a process that changes nothing there; undefined if there are none that it may read. */
export async function existingDiskKeys(stateDir: string): Promise<KeyStore | undefined> {
  const path = join(stateDir, 'keys.json');
  const keys = await find(path).catch(() => undefined);
  return keys === undefined ? undefined : diskKeyStore(path);
}
