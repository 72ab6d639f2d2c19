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

export class DiskKeyStore implements KeyStore {
  readonly #path: string;

  private constructor(path: string) {
    this.#path = path;
  }

  /**
   * Creates the directory and the file if they are missing. Processes that do so at the same time end up with one file.
   */
  static async open(stateDir: string): Promise<DiskKeyStore> {
    await makeStateDir(stateDir);
    const store = new DiskKeyStore(join(stateDir, 'keys.json'));
    if ((await store.#find()) === undefined) await createFile(store.#path, textOf([freshKey(Date.now())]));
    return store;
  }

  /** Returns the keys of a state directory, for a process that changes nothing there; undefined if there are none that it may read. */
  static async existing(stateDir: string): Promise<DiskKeyStore | undefined> {
    const store = new DiskKeyStore(join(stateDir, 'keys.json'));
    const keys = await store.#find().catch(() => undefined);
    return keys === undefined ? undefined : store;
  }

  /**
   * See {@link KeyStore.read}. @throws {StartError} with a message for the operator, if other users can use the file, or it is missing or
   * not a key ring.
   */
  async read(): Promise<readonly KeyRecord[]> {
    const keys = await this.#find();
    if (keys === undefined) throw new StartError(`${this.#path} does not exist any more. Restart the gateway.`);
    return keys;
  }

  /** Returns undefined if there is no file. */
  async #find(): Promise<readonly KeyRecord[] | undefined> {
    const text = await readOwnFile(this.#path, {
      maxBytes: FILE_LIMIT_BYTES,
      refusedMode: REFUSED_MODE.usedByAll,
      remedy: ({ isFile }) =>
        isFile
          ? `Who has its keys can make session ids. Run: chmod 600 ${this.#path} ` +
            '(or delete it to begin with new keys: every session then ends)'
          : 'Remove it to begin with new keys: every session then ends.',
    });
    return text === undefined ? undefined : parse(text, this.#path);
  }

  async add(nowMs: number, graceMs: number): Promise<void> {
    await replaceFile(this.#path, [textOf(withFreshKey(await this.read(), nowMs, graceMs))]);
  }
}
