import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { lockFile, removeLock } from '../../../src/store/disk/file-lock.ts';

const OPTIONS = { timeout: 60_000 };
let dir = '';
let files = 0;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-lock-'));
});
after(() => rm(dir, { recursive: true }));

/** Creates a lock, and makes it look like that of a command that was killed. */
async function staleLock() {
  const path = join(dir, `${files++}.lock`);
  const held = await lockFile(path);
  await utimes(path, 0, 0);
  return { path, held, seen: await stat(path) };
}

test('two commands that find the lock of a killed one remove no later lock', OPTIONS, async () => {
  const { path, seen } = await staleLock();
  await using later = await lockFile(path);
  const { ino } = await stat(path);
  assert.equal(await removeLock(path, seen), false, 'the other command has seen the lock before');
  assert.equal((await stat(path)).ino, ino);
  assert.ok(later);
});

test('a command that was stopped for long does not remove the lock of a later one', OPTIONS, async () => {
  const { path, held } = await staleLock();
  const later = await lockFile(path);
  await held[Symbol.asyncDispose]();
  await stat(path);
  await later[Symbol.asyncDispose]();
  await assert.rejects(stat(path), { code: 'ENOENT' });
});

test('one of several commands removes the lock of a killed one, and nothing else stays', OPTIONS, async () => {
  const { path, seen } = await staleLock();
  const removed = await Promise.all(Array.from({ length: 8 }, () => removeLock(path, seen)));
  assert.equal(removed.filter(Boolean).length, 1);
  const name = path.slice(dir.length + 1);
  assert.deepEqual(
    (await readdir(dir)).filter((other) => other.startsWith(name)),
    [],
  );
});
