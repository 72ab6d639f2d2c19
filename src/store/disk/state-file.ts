import { isCode, undefinedIfMissing } from '../../thrown.ts';
import { randomUUID } from 'node:crypto';
import { type FileHandle, link, mkdir, open, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import type { Stats } from 'node:fs';
import { dirname, join } from 'node:path';

/** Returns undefined if there is no such file. */
export async function statOf(path: string): Promise<Stats | undefined> {
  return await stat(path).catch(undefinedIfMissing);
}

/** Creates a directory that only this user can read, with its parents. An existing directory keeps its mode. */
export async function makeStateDir(path: string): Promise<void> {
  if (await isDirectory(path)) return;
  await makeStateDir(dirname(path));
  try {
    // Not `recursive`: in /proc, Node would repeat its attempts for ever, and elsewhere it hides the cause behind ENOENT.
    await mkdir(path, { mode: 0o700 });
  } catch (thrown) {
    // Another process may have made it.
    if (!isCode(thrown, 'EEXIST') || !(await isDirectory(path))) throw thrown;
  }
}

async function isDirectory(path: string): Promise<boolean> {
  return (await statOf(path))?.isDirectory() ?? false;
}

/** Size of one write, so that a long file does not block the process. */
const PIECE_CHARS = 256 * 1_024;

async function writeAll(file: FileHandle, texts: Iterable<string>): Promise<number> {
  let bytes = 0;
  let piece = '';
  const flush = async (): Promise<void> => {
    await file.appendFile(piece);
    bytes += Buffer.byteLength(piece);
    piece = '';
  };
  for (const text of texts) {
    piece += text;
    if (piece.length >= PIECE_CHARS) await flush();
  }
  await flush();
  return bytes;
}

/** Writes a draft beside the file, then calls `place` to move it into place. */
async function writeDraft<T>(
  path: string,
  texts: Iterable<string>,
  place: (draft: string, bytes: number) => Promise<T>,
  like?: Access,
): Promise<T> {
  const draft = `${path}.${randomUUID()}`;
  const file = await open(draft, 'wx', 0o600);
  try {
    let bytes = 0;
    try {
      bytes = await writeAll(file, texts);
      if (like !== undefined) await takeAccess(file, like);
      await file.sync();
    } finally {
      await file.close();
    }
    return await place(draft, bytes);
  } catch (thrown) {
    await unlink(draft).catch(() => undefined);
    throw thrown;
  }
}

/** Owner, group and mode of a file. */
type Access = Pick<Stats, 'uid' | 'gid' | 'mode'>;

const MODE_BITS = 0o777;

/** Gives a file the owner, group and mode of another one. A file of root may get another owner, since root can read it anyway. */
async function takeAccess(file: FileHandle, { uid: wanted, gid, mode }: Access): Promise<void> {
  const own = await file.stat();
  const uid = wanted === 0 ? own.uid : wanted;
  if (own.uid !== uid || own.gid !== gid) await file.chown(uid, gid);
  if ((own.mode & MODE_BITS) !== (mode & MODE_BITS)) await file.chmod(mode & MODE_BITS);
}

const DRAFT = /\.[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/;
/** Age at which a draft is no longer being written. */
const DRAFT_MS = 600_000;

/** Removes drafts that killed processes have left in a directory. */
export async function removeOldDrafts(dir: string): Promise<void> {
  for (const name of await readdir(dir)) {
    if (!DRAFT.test(name)) continue;
    const path = join(dir, name);
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Infinity }));
    if (Date.now() - mtimeMs > DRAFT_MS) await rm(path, { force: true });
  }
}

async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open a directory.
  if (process.platform === 'win32') return;
  await using directory = await open(path, 'r');
  await directory.sync();
}

/**
 * Replaces or creates a file that only this user can read. Readers see the old or the new content. Returns its size.
 *
 * @param like gives the file the owner, group and mode of another one. Fails with `EPERM` if the system does not allow that.
 */
export async function replaceFile(path: string, texts: Iterable<string>, like?: Access): Promise<number> {
  const place = async (draft: string, size: number) => {
    await rename(draft, path);
    return size;
  };
  const bytes = await writeDraft(path, texts, place, like);
  await syncDirectory(dirname(path));
  return bytes;
}

/**
 * Creates a file that only this user can read. Returns false if it exists. Of several processes at once, one succeeds.
 */
export async function createFile(path: string, text: string): Promise<boolean> {
  const isCreated = await writeDraft(path, [text], async (draft) => {
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
  return isCreated;
}
