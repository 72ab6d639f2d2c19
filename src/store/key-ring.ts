import { randomBytes } from 'node:crypto';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { createFile, isCode, makeStateDir, replaceFile } from './state-file.ts';

const KEY_BYTES = 32;

const ringSchema = z.strictObject({
  keys: z
    .array(
      z.strictObject({
        kid: z.string().min(1),
        key: z.base64url().refine((text) => Buffer.from(text, 'base64url').length === KEY_BYTES),
        /** Ms since the epoch. */
        created: z.number(),
        /** Ms since the epoch; from then on it opens nothing any more. */
        until: z.number().exactOptional(),
      }),
    )
    .min(1),
});

export type RingKey = z.output<typeof ringSchema>['keys'][number];

/** A key that was replaced is thrown away this long after nothing sealed with it opens any more. */
const KEEP_MS = 24 * 3_600_000;

function freshKey(nowMs: number): RingKey {
  return {
    kid: randomBytes(6).toString('base64url'),
    key: randomBytes(KEY_BYTES).toString('base64url'),
    created: nowMs,
  };
}

function textOf(keys: readonly RingKey[]): string {
  return `${JSON.stringify({ keys }, undefined, 2)}\n`;
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's complaint quotes the text, which is secret.
    return undefined;
  }
}

function parse(text: string, path: string): readonly RingKey[] {
  const { data, error } = ringSchema.safeParse(json(text));
  if (data !== undefined) return data.keys;
  const where = error.issues[0]?.path.join('.') ?? '';
  throw new Error(
    `${path} is not a key ring${where && ` (look at ${where})`}. ` +
      'Restore it from a backup, or delete it: every session and cursor then ends.',
  );
}

/** Keys that seal what clients bring back, in a file of the state directory, oldest first. */
export class KeyRing {
  readonly #path: string;

  private constructor(path: string) {
    this.#path = path;
  }

  /** Makes the directory and the ring where there are none; processes that do so at the same time end up with one ring. */
  static async open(stateDir: string): Promise<KeyRing> {
    await makeStateDir(stateDir);
    const ring = new KeyRing(join(stateDir, 'keys.json'));
    try {
      await ring.read();
    } catch (thrown) {
      if (!isCode(thrown, 'ENOENT')) throw thrown;
      await createFile(ring.#path, textOf([freshKey(Date.now())]));
    }
    return ring;
  }

  /** @throws {Error} with words for the operator, when others can read the file or it is no key ring. */
  async read(): Promise<readonly RingKey[]> {
    const file = await open(this.#path, 'r');
    try {
      const { mode } = await file.stat();
      // Kubernetes opens a volume to the pod's group by itself, so a group may read; Windows has no such bits.
      if ((mode & 0o007) !== 0 && process.platform !== 'win32') {
        const bits = (mode & 0o777).toString(8);
        throw new Error(
          `${this.#path} is open to every user of this machine (mode ${bits}), and whoever has its keys can make session ids. ` +
            `Run: chmod 600 ${this.#path} (or delete it to begin with new keys: every session then ends)`,
        );
      }
      return parse(await file.readFile('utf8'), this.#path);
    } finally {
      await file.close();
    }
  }

  /** Adds a key, and gives those before it `graceMs` to live. One process at a time may do this. */
  async add(nowMs: number, graceMs: number): Promise<void> {
    const kept = (await this.read()).filter(({ until = Infinity }) => until + KEEP_MS > nowMs);
    const old = kept.map((key) => ({ ...key, until: Math.min(key.until ?? Infinity, nowMs + graceMs) }));
    await replaceFile(this.#path, textOf([...old, freshKey(nowMs)]));
  }
}
