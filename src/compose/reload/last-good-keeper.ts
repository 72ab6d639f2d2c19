import type { Logger } from 'pino';
import type { Loaded } from '../../config/load.ts';
import { removeLastGood, writeLastGood } from '../../store/disk/last-good-file.ts';

export interface LastGoodKeeperParts {
  readonly stateDir: string;
  /** True if a copy is kept (`--last-good`). Otherwise an older one is removed, because it may hold secrets. */
  readonly isWanted: boolean;
  /** True if this process owns the state directory. */
  readonly ownsState: boolean;
  readonly log: Logger;
}

/**
 * Returns a function that keeps a copy of a config which is in use. The gateway works without the copy, so a failure is only
 * logged.
 */
export function lastGoodKeeper({ stateDir, isWanted, ownsState, log }: LastGoodKeeperParts) {
  return async ({ config: { file }, copy, lastGood }: Loaded): Promise<void> => {
    // The upstreams in use are those of the copy.
    if (!ownsState || lastGood !== undefined) return;
    try {
      if (!isWanted || copy === undefined) await removeLastGood(stateDir);
      else await writeLastGood(stateDir, { file, savedAt: new Date().toISOString(), copy });
      if (isWanted && copy === undefined) {
        log.warn({ file }, 'no copy of the config is kept for --last-good, because the file is the state of a client');
      }
    } catch (thrown) {
      log.warn({ err: thrown, stateDir }, 'the copy of the config for --last-good cannot be kept');
    }
  };
}
