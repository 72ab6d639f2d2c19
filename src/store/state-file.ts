import { randomUUID } from 'node:crypto';
import { link, mkdir, open, rename, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';

/** A directory of ours alone, with those above it. One that is there already keeps its mode. */
export async function makeStateDir(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
}

export function isCode(thrown: unknown, code: string): boolean {
  return thrown instanceof Error && 'code' in thrown && thrown.code === code;
}

async function written<T>(path: string, text: string, place: (draft: string) => Promise<T>): Promise<T> {
  const draft = `${path}.${randomUUID()}`;
  const file = await open(draft, 'wx', 0o600);
  try {
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    return await place(draft);
  } catch (thrown) {
    await unlink(draft).catch(() => undefined);
    throw thrown;
  }
}

async function syncDirectory(path: string): Promise<void> {
  // Windows has no such thing.
  if (process.platform === 'win32') return;
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Puts a whole file, readable by us alone, in the place of what is there. */
export async function replaceFile(path: string, text: string): Promise<void> {
  await written(path, text, (draft) => rename(draft, path));
  await syncDirectory(dirname(path));
}

/** Makes a whole file, readable by us alone, unless there is one: of several processes that try at once, one succeeds. */
export async function createFile(path: string, text: string): Promise<boolean> {
  const isMade = await written(path, text, async (draft) => {
    try {
      await link(draft, path);
      return true;
    } catch (thrown) {
      if (isCode(thrown, 'EEXIST')) return false;
      throw thrown;
    } finally {
      await unlink(draft);
    }
  });
  await syncDirectory(dirname(path));
  return isMade;
}
