import { messageOf } from '../thrown.ts';
import { resolve } from 'node:path';
import type { KeptUpstreams } from '../config/last-good.ts';
import { stateDirOf } from '../config/state-dir.ts';
import { readLastGood } from '../store/disk/last-good-file.ts';

/** Returns the upstreams of the last good version of a config file, from the state directory that the file names. */
export async function keptUpstreams(file: string, env: NodeJS.ProcessEnv): Promise<KeptUpstreams> {
  const stateDir = await stateDirOf(file, env);
  try {
    const found = await readLastGood(stateDir);
    if (found?.file === resolve(file)) return found;
    const missing = `there is no last good version of this file in ${stateDir}; a start with --last-good keeps one`;
    return { missing };
  } catch (thrown) {
    return { missing: messageOf(thrown) };
  }
}
