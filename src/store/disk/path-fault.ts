import { systemCode } from '../../thrown.ts';

/** The codes of `errno`. Node's own begin with `ERR_`. */
const SYSTEM_CODE = /^E[A-Z0-9]+$/;

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'this user may not use it',
  EPERM: 'this user may not use it',
  EROFS: 'its file system is read-only',
  EISDIR: 'it is a directory',
  ENOTDIR: 'a part of its path is a file',
  EEXIST: 'a part of its path is a file',
  ENOSPC: 'its disk is full',
  ELOOP: 'its symbolic links lead in a circle',
  ENAMETOOLONG: 'its name is too long',
  EDQUOT: 'the quota is used up',
};

/**
 * Returns the reason why a path cannot be used, in words and with the code of the system; undefined for any other error.
 *
 * @param missing the words for `ENOENT`.
 */
export function writeFault(thrown: unknown, missing: string): string | undefined {
  const code = systemCode(thrown);
  if (code === undefined || !SYSTEM_CODE.test(code)) return undefined;
  return `${code === 'ENOENT' ? missing : (REASONS[code] ?? 'the system refuses it')} (${code})`;
}

/** Returns a message about the path that an error of the system names; undefined if it names none. */
export function pathFault(thrown: unknown): string | undefined {
  const reason = writeFault(thrown, 'it does not exist');
  if (reason === undefined || !(thrown instanceof Error) || !('path' in thrown)) return undefined;
  return `${String(thrown.path)} cannot be used: ${reason}. Name a path that ${ownUser()} can use`;
}

/** Returns the user of this process, for advice about rights. */
export function ownUser(): string {
  return process.getuid === undefined ? 'this user' : `user ${process.getuid()}`;
}
