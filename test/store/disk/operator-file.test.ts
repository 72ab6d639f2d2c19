import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmod, chown, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
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

test('a file that others can write, or that is broken, is refused with a reason', async () => {
  await writeOperatorFile(dir, CONTENT);
  await chmod(join(dir, 'operator.json'), 0o666);
  await assert.rejects(readOperatorFile(dir), /another user.*Restart the gateway/);
  await rm(join(dir, 'operator.json'));
  await writeFile(join(dir, 'operator.json'), '{"token": "secret', { mode: 0o600 });
  await assert.rejects(readOperatorFile(dir), (error: Error) => !error.message.includes('secret'));
});

const AS_ROOT = { skip: process.geteuid?.() !== 0 && 'only root can give files away' };
const SERVICE_UID = 65_534;
const THIRD_UID = 65_533;

test('root reads the file of the user of a service only where the place is named', AS_ROOT, async () => {
  const state = await mkdtemp(join(dir, 'service-'));
  await writeOperatorFile(state, CONTENT);
  await chown(join(state, 'operator.json'), SERVICE_UID, SERVICE_UID);
  await chown(state, SERVICE_UID, SERVICE_UID);
  await assert.rejects(readOperatorFile(state), /another user.*--state-dir/);
  assert.deepEqual(await readOperatorFile(state, 'any-for-root'), CONTENT);
});

const PLANTED: readonly {
  readonly what: string;
  readonly uid: number;
  readonly dirMode: number;
  readonly mode: number;
}[] = [
  { what: 'the directory belongs to a third user', uid: THIRD_UID, dirMode: 0o700, mode: 0o600 },
  { what: 'everybody can write the directory', uid: SERVICE_UID, dirMode: 0o1777, mode: 0o600 },
  { what: 'everybody can write the file', uid: SERVICE_UID, dirMode: 0o700, mode: 0o666 },
];

for (const { what, uid, dirMode, mode } of PLANTED) {
  test(`root reads no file of another user if ${what}`, AS_ROOT, async () => {
    const state = await mkdtemp(join(dir, 'planted-'));
    await writeOperatorFile(state, CONTENT);
    await chown(join(state, 'operator.json'), SERVICE_UID, SERVICE_UID);
    await chmod(join(state, 'operator.json'), mode);
    await chown(state, uid, uid);
    await chmod(state, dirMode);
    await assert.rejects(readOperatorFile(state, 'any-for-root'), /another user/);
  });
}

test('a pipe in the place of the file is refused without waiting for a writer', async () => {
  const state = await mkdtemp(join(dir, 'pipe-'));
  assert.equal(spawnSync('mkfifo', [join(state, 'operator.json')]).status, 0);
  await assert.rejects(readOperatorFile(state), /is no ordinary file/);
});

test('each key has 256 random bits', () => {
  assert.equal(Buffer.from(newOperatorToken(), 'base64url').length, 32);
  assert.notEqual(newOperatorToken(), newOperatorToken());
});
