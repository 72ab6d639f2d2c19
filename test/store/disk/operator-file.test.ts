import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import {
  newOperatorToken,
  readOperatorFile,
  removeOperatorFile,
  writeOperatorFile,
} from '../../../src/store/disk/operator-file.ts';

let dir = '';
const CONTENT = {
  url: 'http://127.0.0.1:1',
  token: newOperatorToken(),
  pid: 1,
  version: '0',
  configFile: '/c',
  startedAt: '',
};

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-operator-'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

test('the file of a gateway is readable for its user alone, and is read back', async () => {
  await writeOperatorFile(dir, CONTENT);
  assert.equal((await stat(join(dir, 'operator.json'))).mode & 0o777, 0o600);
  assert.deepEqual(await readOperatorFile(dir), CONTENT);
});

test('a gateway removes its own file only', async () => {
  await writeOperatorFile(dir, CONTENT);
  await removeOperatorFile(dir, newOperatorToken());
  assert.notEqual(await readOperatorFile(dir), undefined);
  await removeOperatorFile(dir, CONTENT.token);
  assert.equal(await readOperatorFile(dir), undefined);
});

test('a file that others can write, or that is broken, is refused with words', async () => {
  await writeOperatorFile(dir, CONTENT);
  await chmod(join(dir, 'operator.json'), 0o666);
  await assert.rejects(readOperatorFile(dir), /another user.*Restart the gateway/);
  await rm(join(dir, 'operator.json'));
  await writeFile(join(dir, 'operator.json'), '{"token": "secret', { mode: 0o600 });
  await assert.rejects(readOperatorFile(dir), (error: Error) => !error.message.includes('secret'));
});

test('each key has 256 random bits', () => {
  assert.equal(Buffer.from(newOperatorToken(), 'base64url').length, 32);
  assert.notEqual(newOperatorToken(), newOperatorToken());
});
