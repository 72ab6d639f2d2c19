import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { undefinedIfMissing } from '../thrown.ts';
import { renamedFilesOf, seqInName } from './renamed-files.ts';
import { oddKindOf } from './verify.ts';

const BEGINNING_BYTES = 32;

/**
 * Yields files of records with the renamed ones beside them, in the order of their first records.
 *
 * A gateway may rename the file that it writes while earlier ones are read. So the list is made anew before that file is yielded.
 */
export async function* filesInOrder(named: readonly string[]): AsyncGenerator<string> {
  const yielded = new Set<string>();
  for (;;) {
    const files = await listed(named, yielded);
    const written = files.findIndex((file) => seqInName(file) === undefined);
    const renamed = written === -1 ? files : files.slice(0, written);
    if (renamed.length === 0) {
      yield* files;
      return;
    }
    for (const file of renamed) yielded.add(resolve(file));
    yield* renamed;
  }
}

/** Returns the files as they are now, without those that were yielded. */
async function listed(named: readonly string[], yielded: ReadonlySet<string>): Promise<readonly string[]> {
  // The same file may be named in several ways, such as `audit.log` and `./audit.log`.
  const all = new Map<string, string>();
  for (const file of named) {
    for (const one of [...(await renamedFilesOf(file)), file]) {
      if (!yielded.has(resolve(one))) all.set(resolve(one), one);
    }
  }
  const numbered: { readonly file: string; readonly seq: number }[] = [];
  for (const file of all.values()) {
    // A gateway renames and removes files.
    const seq = await firstSeqOf(file).catch(undefinedIfMissing);
    if (seq !== undefined) numbered.push({ file, seq });
  }
  return numbered.toSorted((a, b) => a.seq - b.seq).map(({ file }) => file);
}

/** Returns the number of the first record of a file, which may follow an empty line; infinite if it has none. */
async function firstSeqOf(file: string): Promise<number> {
  if ((await oddKindOf(file)) !== undefined) return Number.POSITIVE_INFINITY;
  await using handle = await open(file, 'r');
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(BEGINNING_BYTES), 0, BEGINNING_BYTES, 0);
  const [, seq] = /^\n?\{"seq":(\d{1,15}),/.exec(buffer.toString('latin1', 0, bytesRead)) ?? [];
  return seq === undefined ? Number.POSITIVE_INFINITY : Number(seq);
}
