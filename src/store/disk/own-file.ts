import { open } from 'node:fs/promises';
import { isCode } from './state-file.ts';

/**
 * Returns the text of a file that only this user or root can have written; undefined if there is none.
 *
 * @throws {Error} with a message for the operator, if the file is too large, cannot be read, or others can write it.
 */
export async function readOwnFile(path: string, limitBytes: number): Promise<string | undefined> {
  try {
    const file = await open(path, 'r');
    try {
      const { mode, uid, size } = await file.stat();
      const isForeign = process.getuid !== undefined && uid !== process.getuid() && uid !== 0;
      if (isForeign || (process.platform !== 'win32' && (mode & 0o022) !== 0)) {
        throw new Error(`${path} could have been written by another user, so it is not used. Restart the gateway.`);
      }
      if (size > limitBytes) throw new Error(`${path} is larger than ${limitBytes} bytes, so it is not used.`);
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT') || isCode(thrown, 'ENOTDIR')) return undefined;
    throw thrown;
  }
}

/** Returns the value of a JSON text; undefined if it is none. The parser's message would quote the text, which may be secret. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
