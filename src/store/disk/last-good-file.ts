import { jsonOf } from '../../json/record.ts';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { readOwnFile, REFUSED_MODE } from './own-file.ts';
import { replaceFile } from './state-file.ts';

const NAME = 'last-good-config.json';
const FILE_LIMIT_BYTES = 16_777_216;

const schema = z.object({
  /** Absolute path of the config file. */
  file: z.string(),
  savedAt: z.iso.datetime(),
  copy: z.object({ text: z.string(), envFiles: z.record(z.string(), z.string()) }),
});

/** A copy of a config file, which a gateway has used. */
export type LastGoodFile = z.output<typeof schema>;

/** Writes the copy to a state directory. Only this user can read it. @throws {Error} if it is too large or cannot be written. */
export async function writeLastGood(stateDir: string, content: LastGoodFile): Promise<void> {
  const text = JSON.stringify(content);
  if (Buffer.byteLength(text) > FILE_LIMIT_BYTES) throw new Error(`the copy is larger than ${FILE_LIMIT_BYTES} bytes`);
  await replaceFile(join(stateDir, NAME), [text]);
}

/** Removes the copy from a state directory, if there is one. */
export async function removeLastGood(stateDir: string): Promise<void> {
  await rm(join(stateDir, NAME), { force: true });
}

/**
 * Returns the copy in a state directory; undefined if there is none.
 *
 * @throws {Error} with a message for the operator, if it cannot be used. It names programs that the gateway runs, so a copy
 *   that another user could have written is refused.
 */
export async function readLastGood(stateDir: string): Promise<LastGoodFile | undefined> {
  const path = join(stateDir, NAME);
  const text = await readOwnFile(path, {
    maxBytes: FILE_LIMIT_BYTES,
    refusedMode: REFUSED_MODE.writtenByOthers,
    remedy: 'Restart the gateway with a config that can be used.',
  });
  if (text === undefined) return undefined;
  const parsed = schema.safeParse(jsonOf(text));
  if (parsed.success) return parsed.data;
  throw new Error(`${path} is no copy of a config.`);
}
