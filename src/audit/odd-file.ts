import { stat } from 'node:fs/promises';

/**
 * Returns the kind of a file that has no records, such as `a directory`; undefined for a regular file. Opening a pipe would wait for its
 * writer.
 *
 * @throws an error of the system if there is nothing at the path.
 */
export async function oddKindOf(path: string): Promise<string | undefined> {
  const stats = await stat(path);
  if (stats.isFile()) return undefined;
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a pipe';
  return stats.isSocket() ? 'a socket' : 'a device';
}
