import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isStateLocked, lockState, type StateLock } from '../../../src/store/disk/state-lock.ts';

const OPTIONS = { timeout: 120_000 };
const PROGRAM = fileURLToPath(new URL('../../fixtures/servers/owns-state.ts', import.meta.url));

async function testDir(...below: readonly string[]) {
  const root = await mkdtemp(join(tmpdir(), 'linkspan-lock-'));
  const path = join(root, ...below);
  await mkdir(path, { recursive: true });
  return {
    path,
    sockets: () => readdir(join(path, 'owner')),
    [Symbol.asyncDispose]: () => rm(root, { recursive: true }),
  };
}

/** A child process that can own a state directory. */
class Contender implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: NodeJS.AsyncIterator<string>;
  readonly #closed: Promise<unknown>;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>, lines: Interface) {
    this.#child = child;
    this.#lines = lines[Symbol.asyncIterator]();
    this.#closed = once(child, 'close');
  }

  static async start(dir: string): Promise<Contender> {
    const child = spawn(process.execPath, [PROGRAM, dir], { stdio: ['pipe', 'pipe', 'inherit'] });
    const contender = new Contender(child, createInterface({ input: child.stdout }));
    assert.equal(await contender.#line(), 'ready');
    return contender;
  }

  async #line(): Promise<string | undefined> {
    const { value } = await this.#lines.next();
    return value;
  }

  async lock(): Promise<string | undefined> {
    this.#child.stdin.write('lock\n');
    return await this.#line();
  }

  async release(): Promise<void> {
    this.#child.stdin.write('release\n');
    assert.equal(await this.#line(), 'released');
  }

  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

async function startAll(dir: string, count: number) {
  const contenders = await Promise.all(Array.from({ length: count }, () => Contender.start(dir)));
  return {
    contenders,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(contenders.map((each) => each.kill()));
    },
  };
}

// N-67
test('a second process owns the directory only after the first released it', OPTIONS, async () => {
  await using dir = await testDir();
  await using first = await Contender.start(dir.path);
  await using second = await Contender.start(dir.path);
  assert.equal(await first.lock(), 'owner');
  assert.equal(await second.lock(), 'not the owner');
  assert.equal(await isStateLocked(dir.path), true);
  await first.release();
  assert.equal(await isStateLocked(dir.path), false);
  assert.equal(await second.lock(), 'owner');
});

// N-67
test('the owner that was killed leaves a socket, which the next one replaces', OPTIONS, async () => {
  await using dir = await testDir();
  for (let round = 0; round < 3; round++) {
    await using owner = await Contender.start(dir.path);
    assert.equal(await owner.lock(), 'owner');
    assert.equal((await dir.sockets()).length, 1);
    await owner.kill();
    assert.equal((await dir.sockets()).length, 1);
    assert.equal(await isStateLocked(dir.path), false);
  }
});

// N-67
test('of 20 processes that start at once one is the owner, also after it was killed', OPTIONS, async () => {
  await using dir = await testDir();
  await using all = await startAll(dir.path, 20);
  let living = all.contenders;
  for (let round = 0; round < 3; round++) {
    const states = await Promise.all(living.map((each) => each.lock()));
    assert.equal(states.filter((each) => each === 'owner').length, 1, states.join());
    const owner = living[states.indexOf('owner')];
    await owner?.kill();
    living = living.filter((each) => each !== owner);
  }
});

// N-67
test('of many attempts at once, at most one succeeds, with any dead sockets', OPTIONS, async () => {
  await using dir = await testDir();
  await mkdir(join(dir.path, 'owner'));
  for (let round = 0; round < 60; round++) {
    // A regular file counts as dead, like the socket of an ended process.
    for (let i = 0; i < round % 4; i++) await writeFile(join(dir.path, 'owner', String(round + i)), '');
    let [owners, most] = [0, 0];
    const attempt = async (): Promise<StateLock | undefined> => {
      const lock = await lockState(dir.path);
      if (lock === undefined) return undefined;
      most = Math.max(most, ++owners);
      // In every second round the owner releases the directory at once, during the attempts of the others.
      if (round % 2 === 1) {
        owners--;
        await lock.release();
        return undefined;
      }
      return lock;
    };
    const locks = await Promise.all(Array.from({ length: 12 }, attempt));
    assert.equal(most, 1);
    for (const lock of locks) await lock?.release();
  }
  assert.equal(await isStateLocked(dir.path), false);
});

// N-67
test('a directory whose path is too long for a socket is owned by one process even so', OPTIONS, async () => {
  await using dir = await testDir('d'.repeat(100), 'e'.repeat(100));
  await using first = await Contender.start(dir.path);
  await using second = await Contender.start(dir.path);
  assert.equal(await first.lock(), 'owner');
  assert.equal(await second.lock(), 'not the owner');
  await first.kill();
  assert.equal(await second.lock(), 'owner');
});

// N-67
test('two names of one directory are one directory', OPTIONS, async () => {
  await using dir = await testDir('real');
  const other = join(dir.path, '..', 'other');
  await symlink(dir.path, other);
  const lock = await lockState(dir.path);
  assert.ok(lock);
  assert.equal(await lockState(other), undefined);
  await lock.release();
});

// N-67
test('a suspended owner still owns the directory', OPTIONS, async () => {
  await using dir = await testDir();
  await using first = await Contender.start(dir.path);
  assert.equal(await first.lock(), 'owner');
  first.pause();
  assert.equal(await lockState(dir.path), undefined);
  await first.kill();
  const lock = await lockState(dir.path);
  assert.ok(lock);
  await lock.release();
});

test('a lock ends also where its socket cannot be removed', OPTIONS, async () => {
  await using dir = await testDir();
  const lock = await lockState(dir.path);
  assert.ok(lock !== undefined);
  const owner = join(dir.path, 'owner');
  await rename(owner, join(dir.path, 'before'));
  // As a disk that has become read-only, it refuses the removal.
  await writeFile(owner, '');
  await lock.release();
  await rm(owner);
  await rename(join(dir.path, 'before'), owner);
  const next = await lockState(dir.path);
  assert.ok(next !== undefined);
  await next.release();
});
