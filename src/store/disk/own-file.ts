import { isCode } from '../../thrown.ts';
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { StartError } from '../../errors.ts';

/** Users besides root and the reading one whose files are read: none, or any if root reads. */
export type AllowedOwners = 'self' | 'any-for-root';

/** Mode bits that a file must not have. Kubernetes opens a volume to the group of the pod, so most rules leave out the group. */
export const REFUSED_MODE = {
  /** Every user of the machine can write the file. */
  writtenByAll: 0o002,
  /** Every user of the machine can read or write the file. */
  usedByAll: 0o007,
  /** The group or every user can write the file. */
  writtenByOthers: 0o022,
  /** The group can write the file, or every user can read or write it. */
  writtenByGroupOrUsedByAll: 0o027,
} as const;

/** A file that is refused. */
interface Refused {
  /** Its owner; -1 if it is a symbolic link. */
  readonly uid: number;
  /** False for a directory, a pipe and the like. */
  readonly isFile: boolean;
}

/** Conditions on which a file is read. */
export interface FileRules {
  readonly maxBytes: number;
  /** One of {@link REFUSED_MODE}. */
  readonly refusedMode: number;
  /**
   * Default `self`. `any-for-root`: root reads a file of another user too, if no third user can have written it. Only for a file whose
   * place the user of the program has named, and whose text cannot start a program.
   */
  readonly owners?: AllowedOwners;
  /** True for a file that the operator names, and that may be a symbolic link. Default false. */
  readonly mayBeLink?: boolean;
  /** A sentence on what the operator can do about a file that is refused. */
  readonly remedy: string | ((refused: Refused) => string);
}

/**
 * Opens a file for reading that no other user can have put there or changed. Returns undefined if there is none. Every file of the
 * state directory is opened so.
 *
 * @throws {RefusedFileError} with a message for the operator, if it is a link, no ordinary file, too large, or not this user's alone.
 */
export async function openOwnFile(path: string, rules: FileRules): Promise<FileHandle | undefined> {
  const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW } = constants;
  // Without blocking, because a pipe in the place of the file would stop the program.
  const flags = O_RDONLY | (O_NONBLOCK ?? 0) | (rules.mayBeLink === true ? 0 : (O_NOFOLLOW ?? 0));
  const file = await open(path, flags).catch((thrown: unknown) => {
    if (isCode(thrown, 'ENOENT') || isCode(thrown, 'ENOTDIR')) return undefined;
    if (isCode(thrown, 'ELOOP'))
      throw new RefusedFileError(path, 'is a symbolic link', remedyOf(rules, { uid: -1, isFile: true }));
    throw thrown;
  });
  if (file === undefined) return undefined;
  try {
    const found = await file.stat();
    const reason = await refusalOf(path, found, rules);
    if (reason !== undefined)
      throw new RefusedFileError(path, reason, remedyOf(rules, { uid: found.uid, isFile: found.isFile() }));
    return file;
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}

/** Returns the text of a file as {@link openOwnFile} opens it; undefined if there is none. @throws as that function does. */
export async function readOwnFile(path: string, rules: FileRules): Promise<string | undefined> {
  await using file = await openOwnFile(path, rules);
  return await file?.readFile('utf8');
}

/** Is thrown for a file that exists and is not used. Its message is for the operator, and quotes nothing of the file. */
export class RefusedFileError extends StartError {
  constructor(path: string, reason: string, remedy: string) {
    super(`${path} ${reason}, so it is not used. ${remedy}`);
  }
}

/** Returns the reason why a file is not used, in words that follow its path. */
async function refusalOf(path: string, found: Stats, rules: FileRules): Promise<string | undefined> {
  if (!found.isFile()) return 'is no ordinary file';
  if (process.platform !== 'win32') {
    if (!(await isTrusted(path, found.uid, rules.owners))) return `belongs to another user (uid ${found.uid})`;
    const refused = found.mode & rules.refusedMode;
    const mode = `mode ${(found.mode & 0o777).toString(8).padStart(4, '0')}`;
    if ((refused & 0o022) !== 0) return `could have been written by another user (${mode})`;
    if (refused !== 0) return `can be read by other users (${mode})`;
  }
  return found.size > rules.maxBytes ? `is larger than ${rules.maxBytes} bytes` : undefined;
}

async function isTrusted(path: string, uid: number, owners: AllowedOwners = 'self'): Promise<boolean> {
  const self = process.geteuid?.();
  if (self === undefined || uid === self || uid === 0) return true;
  if (self !== 0 || owners === 'self') return false;
  // A third user who can write the directory could have put a file of this owner there, by a hard link or by renaming.
  const dir = await stat(dirname(path));
  return (dir.uid === uid || dir.uid === 0) && (dir.mode & REFUSED_MODE.writtenByOthers) === 0;
}

function remedyOf({ remedy }: FileRules, refused: Refused): string {
  return typeof remedy === 'string' ? remedy : remedy(refused);
}

/** Returns the reason, for the operator, why another user can remove and replace the files of a directory; undefined if none can. */
export async function directoryRisk(path: string): Promise<string | undefined> {
  if (process.platform === 'win32') return undefined;
  const { mode, uid } = await stat(path);
  const isForeign = uid !== 0 && uid !== process.geteuid?.();
  if (!isForeign && (mode & REFUSED_MODE.writtenByAll) === 0) return undefined;
  const who = isForeign ? `its owner (uid ${uid})` : 'every user of this machine';
  return `${who} can remove and replace the files of the state directory ${path}; make a directory of mode 0700 for this user`;
}
