import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { SocketDir } from '../../../src/compose/workers/socket-dir.ts';

/** Leaves a socket in a folder, as a process that was killed does. */
async function leaveSocket(dir: string): Promise<void> {
  const server = createServer().listen(join(dir, 'open'));
  await once(server, 'listening');
  await rename(join(dir, 'open'), join(dir, '1.sock'));
  server.close();
  await once(server, 'close');
}

test('sockets of workers are in a folder for this user, in place of older ones', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-sockets-'));
  try {
    await mkdir(join(stateDir, 'offers'));
    const old = await SocketDir.open(stateDir, true);
    await leaveSocket(old.path);
    const dir = await SocketDir.open(stateDir, true);
    assert.equal(dirname(dir.path), stateDir);
    assert.equal((await stat(dir.path)).mode & 0o777, 0o700);
    assert.equal((await readdir(stateDir)).length, 2);
    await dir[Symbol.asyncDispose]();
    assert.deepEqual(await readdir(stateDir), ['offers']);
  } finally {
    await rm(stateDir, { recursive: true });
  }
});

test('nothing but sockets of workers is removed from a state directory', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-sockets-'));
  try {
    const kept = ['workers-api', 'workers-api/data', 'workers-backup', 'workers-backup/a.sock', 'workers-config'];
    await mkdir(join(stateDir, 'workers-api'));
    await mkdir(join(stateDir, 'workers-backup'));
    for (const file of ['workers-api/data', 'workers-backup/a.sock', 'workers-config']) {
      await writeFile(join(stateDir, file), 'x');
    }
    await symlink('workers-config', join(stateDir, 'workers-shared'));
    await (await SocketDir.open(stateDir, true))[Symbol.asyncDispose]();
    assert.deepEqual((await readdir(stateDir, { recursive: true })).toSorted(), [...kept, 'workers-shared']);
  } finally {
    await rm(stateDir, { recursive: true });
  }
});

test('the sockets of a killed parent are removed if the path of its state is long', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), `linkspan-${'x'.repeat(80)}-`));
  try {
    const [old, other] = [await SocketDir.open(stateDir, true), await SocketDir.open(stateDir, false)];
    await leaveSocket(old.path);
    await leaveSocket(other.path);
    await using dir = await SocketDir.open(stateDir, true);
    assert.equal(dirname(dir.path), tmpdir());
    await assert.rejects(stat(old.path), { code: 'ENOENT' });
    assert.deepEqual(await readdir(other.path), ['1.sock'], 'a gateway that does not own the state may use it');
    await other[Symbol.asyncDispose]();
  } finally {
    await rm(stateDir, { recursive: true });
  }
});

test('a long path, or a state directory of another process, has no sockets', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), `linkspan-${'x'.repeat(80)}-`));
  try {
    for (const ownsState of [true, false]) {
      await using dir = await SocketDir.open(stateDir, ownsState);
      assert.equal(dirname(dir.path), tmpdir());
    }
  } finally {
    await rm(stateDir, { recursive: true });
  }
});

test('a state directory in which no folder can be made has no sockets', async () => {
  // As one on a full disk.
  await using dir = await SocketDir.open('/proc/self', true);
  assert.equal(dirname(dir.path), tmpdir());
  assert.deepEqual(await readdir(dir.path), []);
});
