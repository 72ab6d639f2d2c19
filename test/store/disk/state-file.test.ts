import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createFile, replaceFile } from '../../../src/store/disk/state-file.ts';

const OPTIONS = { timeout: 120_000 };

async function testDir() {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-file-'));
  return { path, file: join(path, 'state'), [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

test('of many processes that create a file, one succeeds with its content', OPTIONS, async () => {
  await using dir = await testDir();
  const made = await Promise.all(Array.from({ length: 20 }, (_, i) => createFile(dir.file, `text ${i}`)));
  assert.equal(made.filter(Boolean).length, 1);
  assert.equal(await readFile(dir.file, 'utf8'), `text ${made.indexOf(true)}`);
  assert.equal(await createFile(dir.file, 'late'), false);
  assert.equal(await readFile(dir.file, 'utf8'), `text ${made.indexOf(true)}`);
  assert.deepEqual(await readdir(dir.path), ['state']);
});

test('a reader finds a replaced file whole, old or new', OPTIONS, async () => {
  await using dir = await testDir();
  const texts = ['a', 'b', 'c'].map((letter) => letter.repeat(100_000));
  await replaceFile(dir.file, ['begin']);
  const reading = Array.fromAsync(Array.from({ length: 50 }), () => readFile(dir.file, 'utf8'));
  for (const text of texts) await replaceFile(dir.file, [text]);
  for (const text of await reading) assert.ok(text === 'begin' || texts.includes(text), text.slice(0, 20));
  assert.equal((await stat(dir.file)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(dir.path), ['state']);
});

test('a file that cannot be put in place leaves nothing behind', OPTIONS, async () => {
  await using dir = await testDir();
  await assert.rejects(replaceFile(dir.path, ['text']), (error) => error instanceof Error);
  assert.deepEqual(await readdir(dir.path), []);
});
