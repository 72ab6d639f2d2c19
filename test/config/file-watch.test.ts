import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { FileWatch } from '../../src/config/file-watch.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 30_000 };
const TIMES = { pollMs: 20, settleMs: 10 };

interface Watched extends AsyncDisposable {
  readonly dir: string;
  readonly file: string;
  readonly changes: () => number;
  readonly watch: FileWatch;
}

async function watchFile(more: readonly string[] = [], times = TIMES): Promise<Watched> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-watch-'));
  const file = join(dir, 'config.yaml');
  await writeFile(file, 'one');
  let changes = 0;
  const watch = new FileWatch(() => changes++, times);
  await watch.setFiles([file, ...more.map((name) => join(dir, name))]);
  return {
    dir,
    file,
    changes: () => changes,
    watch,
    [Symbol.asyncDispose]: async () => {
      watch[Symbol.dispose]();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

test('a file that is written in place is reported', TIMEOUT, async () => {
  await using at = await watchFile();
  await writeFile(at.file, 'two');
  await waitUntil(() => at.changes() === 1);
});

test('a file that an editor replaces is reported, each time', TIMEOUT, async () => {
  await using at = await watchFile();
  for (const n of [1, 2, 3]) {
    await writeFile(join(at.dir, '.swap'), 'two');
    await rename(join(at.dir, '.swap'), at.file);
    await waitUntil(() => at.changes() === n);
  }
});

test('a file of equal size and time that replaces another is reported', TIMEOUT, async () => {
  await using at = await watchFile();
  const time = new Date(1_000_000);
  await utimes(at.file, time, time);
  await waitUntil(() => at.changes() === 1);
  await writeFile(join(at.dir, 'next'), 'two');
  await utimes(join(at.dir, 'next'), time, time);
  await rename(join(at.dir, 'next'), at.file);
  await waitUntil(() => at.changes() === 2);
});

test('a ConfigMap that is updated through its directory link is reported', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-map-'));
  try {
    for (const version of ['..1', '..2']) {
      await mkdir(join(dir, version));
      await writeFile(join(dir, version, 'config.yaml'), version);
    }
    await symlink('..1', join(dir, '..data'));
    await symlink('..data/config.yaml', join(dir, 'config.yaml'));
    let changes = 0;
    using watch = new FileWatch(() => changes++, TIMES);
    await watch.setFiles([join(dir, 'config.yaml')]);
    await symlink('..2', join(dir, '..new'));
    await rename(join(dir, '..new'), join(dir, '..data'));
    await waitUntil(() => changes === 1);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('a second file, and one that does not exist yet, are reported', TIMEOUT, async () => {
  await using at = await watchFile(['secrets/token']);
  await mkdir(join(at.dir, 'secrets'));
  await writeFile(join(at.dir, 'secrets/token'), 'a');
  await waitUntil(() => at.changes() === 1);
  await writeFile(join(at.dir, 'secrets/token'), 'bb');
  await waitUntil(() => at.changes() === 2);
});

test('other files of the folder are not reported, and a removed file is', TIMEOUT, async () => {
  await using at = await watchFile();
  await writeFile(join(at.dir, 'other'), 'x');
  await rm(at.file);
  await waitUntil(() => at.changes() === 1);
  await writeFile(at.file, 'one');
  await waitUntil(() => at.changes() === 2);
});

test('a file that is no longer watched is not reported', TIMEOUT, async () => {
  await using at = await watchFile(['other']);
  await at.watch.setFiles([join(at.dir, 'other')]);
  await writeFile(at.file, 'two');
  await writeFile(join(at.dir, 'other'), 'x');
  await waitUntil(() => at.changes() > 0);
  assert.equal(at.changes(), 1);
});

test('a change is reported by its event, long before files are compared', TIMEOUT, async () => {
  await using at = await watchFile([], { pollMs: 3_600_000, settleMs: 10 });
  await writeFile(at.file, 'two');
  await waitUntil(() => at.changes() === 1);
});

test('a file in a folder that did not exist before is reported', TIMEOUT, async () => {
  await using at = await watchFile(['later/file.yaml']);
  await mkdir(join(at.dir, 'later'));
  await writeFile(join(at.dir, 'later', 'file.yaml'), 'one');
  await waitUntil(() => at.changes() === 1);
});
