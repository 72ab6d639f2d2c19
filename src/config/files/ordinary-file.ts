import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** A file that is none of the kind that a config is read from. */
class NotOrdinaryError extends Error {}

/**
 * Opens an ordinary file for reading. The caller closes it.
 *
 * @throws {NotOrdinaryError} if the path leads to a folder, a pipe, a socket or a device.
 */
export async function openOrdinary(path: string): Promise<{ readonly file: FileHandle; readonly size: number }> {
  // Without blocking, because a pipe without a writer would stop the thread.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const found = await file.stat();
    if (!found.isFile()) throw new NotOrdinaryError('is no ordinary file');
    return { file, size: found.size };
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}
