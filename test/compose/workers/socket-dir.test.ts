import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { SocketDir } from '../../../src/compose/workers/socket-dir.ts';

test('sockets of workers are in a folder for this user, in place of older ones', async () => {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-sockets-'));
  try {
    await mkdir(join(stateDir, 'workers-old', 'x'), { recursive: true });
    await mkdir(join(stateDir, 'offers'));
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
