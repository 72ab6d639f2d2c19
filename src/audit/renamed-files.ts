import { systemCode } from '../thrown.ts';
import { constants } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { type AuditKey, isChained, NO_MAC } from './chain.ts';
import { previousOf, readFirst } from './file-tail.ts';

const SEQ_DIGITS = 15;
const RENAMED = /\.(\d{15})$/;

/** Codes of files that are no renamed ones: directories, pipes, files of other users, and files that are gone. */
const NOT_OURS: ReadonlySet<string> = new Set(['EISDIR', 'EAGAIN', 'ENXIO', 'EACCES', 'EPERM', 'ELOOP', 'ENOENT']);

/** Returns the name that a full file of records gets. @param firstSeq number of its first record. */
export function renamedFile(path: string, firstSeq: number): string {
  return `${path}.${String(firstSeq).padStart(SEQ_DIGITS, '0')}`;
}

/** Returns the number of the first record that the name of a renamed file tells; undefined for another file. */
export function seqInName(path: string): number | undefined {
  const [, digits] = RENAMED.exec(path) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** Returns the paths that have the names of renamed files beside a file of records, the oldest first. Anybody may have made them. */
export async function renamedFilesOf(path: string): Promise<readonly string[]> {
  const name = basename(path);
  const names = await readdir(dirname(path));
  return names
    .filter((other) => other.length === name.length + 1 + SEQ_DIGITS && other.startsWith(name) && RENAMED.test(other))
    .toSorted()
    .map((other) => join(dirname(path), other));
}

/** A renamed file that begins with the record that its name tells, signed by a key of the log. */
export interface OwnFile {
  readonly path: string;
  readonly firstSeq: number;
}

/** Returns the renamed files beside a file of records that the gateway has made, the oldest first. */
export async function ownFilesOf(path: string, keys: readonly AuditKey[]): Promise<readonly OwnFile[]> {
  const own: OwnFile[] = [];
  for (const renamed of await renamedFilesOf(path)) {
    const firstSeq = seqInName(renamed);
    if (firstSeq !== undefined && (await beginsWith(renamed, firstSeq, keys))) own.push({ path: renamed, firstSeq });
  }
  return own;
}

async function beginsWith(path: string, seq: number, keys: readonly AuditKey[]): Promise<boolean> {
  try {
    // To open a pipe without this flag would wait for its writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const first = await readFirst(file);
    return first?.seq === seq && keys.some((key) => isChained(key, previousOf(first) ?? NO_MAC, first));
  } catch (thrown) {
    if (NOT_OURS.has(systemCode(thrown) ?? '')) return false;
    throw thrown;
  }
}
