import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmdirSync, statfsSync } from 'node:fs';
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/** A directory on a real file system that is small enough to be filled. */
export interface SmallDisk extends AsyncDisposable {
  readonly path: string;
  /** Fills the disk, apart from the rest of the last page of each file. */
  fill(): Promise<void>;
  free(): Promise<void>;
}

/** A directory on a file system that is read-only. */
export interface ReadOnlyDisk extends AsyncDisposable {
  readonly path: string;
}

/** In a container this is a tmpfs of 64 MiB; elsewhere it is half of the memory. */
const SHARED_MEMORY = '/dev/shm';
const LARGEST_BYTES = 128 * 1_024 * 1_024;
const LOCK = join(SHARED_MEMORY, 'linkspan-full-disk');
const POLL_MS = 100;

const REMEDY = 'Run the tests as root, in a container, or by: unshare --map-root-user --mount npm test';

/**
 * Returns a small mounted disk, or a folder in the small `/dev/shm` of a container, for one test at a time.
 *
 * @param size in the notation of tmpfs, such as `2m`. A disk that is not mounted is larger.
 * @throws {Error} that says what to do, if this user has neither.
 */
export async function smallDisk(size: string): Promise<SmallDisk> {
  const mounted = mountTmpfs(`size=${size}`);
  if (mounted !== undefined) return { ...filling(mounted.path), ...mounted };
  const { bsize, blocks } = statfsSync(SHARED_MEMORY);
  if (bsize * blocks > LARGEST_BYTES) {
    throw new Error(`no disk can be filled: this user may not mount a tmpfs, and ${SHARED_MEMORY} is large. ${REMEDY}`);
  }
  await lock();
  const path = await mkdtemp(join(SHARED_MEMORY, 'linkspan-disk-'));
  return {
    ...filling(path),
    path,
    [Symbol.asyncDispose]: async () => {
      await rm(path, { recursive: true, force: true });
      await rm(LOCK, { recursive: true, force: true });
    },
  };
}

/**
 * Returns a disk that is mounted read-only for this test, or a read-only one of the system.
 *
 * @throws {Error} that says what to do, if this user has neither.
 */
export async function readOnlyDisk(): Promise<ReadOnlyDisk> {
  const mounted = mountTmpfs('size=1m,ro');
  if (mounted !== undefined) return mounted;
  for (const path of readOnlyMounts()) {
    if (await refusesAsReadOnly(path)) return { path, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  throw new Error(`no file system is read-only here, and this user may not mount one. ${REMEDY}`);
}

/** Returns undefined if this user may not mount. */
function mountTmpfs(options: string): (ReadOnlyDisk & { readonly path: string }) | undefined {
  const path = mkdtempSync(join(tmpdir(), 'linkspan-disk-'));
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]).status !== 0) {
    rmdirSync(path);
    return undefined;
  }
  const unmount = (): void => {
    spawnSync('umount', ['-l', path]);
    rmdirSync(path);
  };
  process.once('exit', unmount);
  return {
    path,
    [Symbol.asyncDispose]: async () => {
      process.off('exit', unmount);
      unmount();
    },
  };
}

function filling(path: string): Pick<SmallDisk, 'fill' | 'free'> {
  const filler = join(path, 'filler');
  return {
    fill: async () => {
      await using file = await open(filler, 'w');
      for (const bytes of [1_048_576, 4_096]) await writeUntilFull(() => file.write(Buffer.alloc(bytes)));
    },
    free: () => rm(filler),
  };
}

async function writeUntilFull(write: () => Promise<unknown>): Promise<void> {
  try {
    for (;;) await write();
  } catch (thrown) {
    if (codeOf(thrown) !== 'ENOSPC') throw thrown;
  }
}

/** Resolves when no other test uses the disk. The lock of a test that was killed is removed. */
async function lock(): Promise<void> {
  const owner = join(LOCK, 'pid');
  for (;;) {
    try {
      await mkdir(LOCK);
      await writeFile(owner, String(process.pid));
      return;
    } catch (thrown) {
      if (codeOf(thrown) !== 'EEXIST') throw thrown;
    }
    const pid = Number(await readFile(owner, 'utf8').catch(() => process.pid));
    if (!isRunning(pid)) await rm(LOCK, { recursive: true, force: true });
    await pause(POLL_MS);
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Directories that the system has mounted read-only. */
function readOnlyMounts(): readonly string[] {
  const lines = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  const mounts = lines.map((line) => line.split(' '));
  return mounts.flatMap(([, path = '', , options = '']) => (options.split(',').includes('ro') ? [path] : []));
}

async function refusesAsReadOnly(path: string): Promise<boolean> {
  try {
    await rm(await mkdtemp(join(path, 'linkspan-')), { recursive: true });
    return false;
  } catch (thrown) {
    return codeOf(thrown) === 'EROFS';
  }
}

function codeOf(thrown: unknown): unknown {
  return thrown instanceof Error && 'code' in thrown ? thrown.code : undefined;
}
