import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A real file system of a few pages, that can be full. */
export interface SmallDisk extends AsyncDisposable {
  readonly path: string;
  /** Leaves no byte free, apart from what is left of the last page of each file. */
  fill(): Promise<void>;
  free(): Promise<void>;
}

/** Why a test is skipped where there is no such disk. */
export const NO_SMALL_DISK = 'this user may not mount a tmpfs, so that no disk can be filled';

/** Mounts one. Returns undefined where this user may not mount. @param options of the tmpfs, such as `size=256k`. */
export function mountSmallDisk(options: string): SmallDisk | undefined {
  const path = mkdtempSync(join(tmpdir(), 'linkspan-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]);
  if (mounted.status !== 0) {
    rmdirSync(path);
    return undefined;
  }
  const unmount = (): void => {
    spawnSync('umount', ['-l', path]);
    rmdirSync(path);
  };
  process.once('exit', unmount);
  const filler = join(path, 'filler');
  return {
    path,
    fill: async () => {
      const file = await open(filler, 'w');
      try {
        for (;;) await file.write(Buffer.alloc(4_096));
      } catch {
        // It is full.
      } finally {
        await file.close();
      }
    },
    free: () => rm(filler),
    [Symbol.asyncDispose]: async () => {
      process.off('exit', unmount);
      unmount();
    },
  };
}
