import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { freshKey, type KeyStore, type KeyRecord, keyRecordSchema, withFreshKey } from '../key-store.ts';
import { createFile, isCode, makeStateDir, replaceFile } from './state-file.ts';

const ringSchema = z.strictObject({ keys: z.array(keyRecordSchema).min(1) });

function textOf(keys: readonly KeyRecord[]): string {
  return `${JSON.stringify({ keys }, undefined, 2)}\n`;
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's message would quote the text, which is secret.
    return undefined;
  }
}

function parse(text: string, path: string): readonly KeyRecord[] {
  const { data, error } = ringSchema.safeParse(json(text));
  if (data !== undefined) return data.keys;
  const where = error.issues[0]?.path.join('.') ?? '';
  throw new Error(
    `${path} is not a key ring${where && ` (look at ${where})`}. ` +
      'Restore it from a backup, or delete it: every session and cursor then ends.',
  );
}

/** Stores the keys in a file of the state directory. */
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
    try {
      await store.read();
    } catch (thrown) {
      if (!isCode(thrown, 'ENOENT')) throw thrown;
      await createFile(store.#path, textOf([freshKey(Date.now())]));
    }
    return store;
  }

  /**
   * See {@link KeyStore.read}. @throws {Error} with a message for the operator, if other users can read the file or it
   * is not a key ring.
   */
  async read(): Promise<readonly KeyRecord[]> {
    const file = await open(this.#path, 'r');
    try {
      const { mode } = await file.stat();
      // Kubernetes makes a volume readable for the pod's group, so a group may read the file. Windows has no such mode
      // bits.
      if ((mode & 0o007) !== 0 && process.platform !== 'win32') {
        const bits = (mode & 0o777).toString(8);
        throw new Error(
          `${this.#path} is open to every user of this machine (mode ${bits}), and anyone who has its keys can make session ids. ` +
            `Run: chmod 600 ${this.#path} (or delete it to begin with new keys: every session then ends)`,
        );
      }
      return parse(await file.readFile('utf8'), this.#path);
    } finally {
      await file.close();
    }
  }

  async add(nowMs: number, graceMs: number): Promise<void> {
    await replaceFile(this.#path, [textOf(withFreshKey(await this.read(), nowMs, graceMs))]);
  }
}
