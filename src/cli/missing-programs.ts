import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, resolve } from 'node:path';

import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { childEnvironment } from '../upstream/stdio/launch/environment.ts';
import { isDirectory, ProgramError, spawnFailure } from '../upstream/stdio/spawn-failure.ts';

/**
 * Searches the programs of stdio upstreams in the same way as a start does. Returns, by upstream id, the reason for each
 * program that cannot be started, with paths: it is for operators.
 */
export async function missingPrograms(
  upstreams: readonly UpstreamConfig[],
  gatewayEnv: Readonly<Record<string, string | undefined>>,
): Promise<ReadonlyMap<string, string>> {
  const missing = new Map<string, string>();
  for (const { id, target, problem } of upstreams) {
    if (problem !== undefined || target.kind !== 'stdio') continue;
    const env = childEnvironment(gatewayEnv, target.env);
    const { command, cwd } = target;
    const folders = command.includes('/') ? [cwd ?? '.'] : (env['PATH'] ?? '').split(delimiter).filter(Boolean);
    const found = await Promise.all(folders.map((folder) => isProgram(resolve(folder, command))));
    if (found.includes(true) && (cwd === undefined || (await isDirectory(cwd)))) continue;
    const error = Object.assign(new Error('not found'), { code: 'ENOENT' });
    const { detail, message, cause } = await spawnFailure(id, target, env, error);
    const note = cause instanceof ProgramError ? ` (${cause.message})` : '';
    missing.set(id, `${detail.message ?? message}${note}`);
  }
  return missing;
}

async function isProgram(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
