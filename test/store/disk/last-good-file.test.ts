import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { readLastGood, removeLastGood, writeLastGood } from '../../../src/store/disk/last-good-file.ts';

const NAME = 'last-good-config.json';
const CONTENT = {
  file: '/etc/linkspan.yaml',
  savedAt: '2026-11-20T08:00:00.000Z',
  copy: { text: 'mcpServers: {}\n', envFiles: { '/etc/a.env': 'TOKEN=secret\n' } },
};

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-last-good-'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

test('a kept config is readable for its user alone, is read back, and can be removed', async () => {
  assert.equal(await readLastGood(dir), undefined);
  await writeLastGood(dir, CONTENT);
  assert.equal((await stat(join(dir, NAME))).mode & 0o777, 0o600);
  assert.deepEqual(await readLastGood(dir), CONTENT);
  await removeLastGood(dir);
  await removeLastGood(dir);
  assert.deepEqual(await readdir(dir), []);
});

test('a kept config that others can write is refused, because it names programs to run', async () => {
  await writeLastGood(dir, CONTENT);
  await chmod(join(dir, NAME), 0o620);
  await assert.rejects(readLastGood(dir), /another user/);
});

test('a broken file is refused without a quote; a config too large is not kept', async () => {
  await rm(join(dir, NAME), { force: true });
  await writeFile(join(dir, NAME), '{"copy": "secret', { mode: 0o600 });
  await assert.rejects(readLastGood(dir), (error: Error) => !error.message.includes('secret'));
  const copy = { text: 'x'.repeat(17 * 1_048_576), envFiles: {} };
  await assert.rejects(writeLastGood(dir, { ...CONTENT, copy }), /larger than/);
});
