import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { childEnvironment } from '../upstream/stdio/launch/environment.ts';
import { programCandidates, programFile } from '../upstream/stdio/launch/program-file.ts';
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
    const path = env['PATH'] ?? '';
    const files = programCandidates(command, cwd, path);
    const found = await Promise.all(files.map((file) => programFile(file, cwd, path)));
    const isThere = found.some((file) => file !== undefined);
    if (isThere && (cwd === undefined || (await isDirectory(cwd)))) continue;
    const error = Object.assign(new Error('not found'), { code: 'ENOENT' });
    const { detail, message, cause } = await spawnFailure(id, target, env, error);
    const note = cause instanceof ProgramError ? ` (${cause.message})` : '';
    missing.set(id, `${detail.message ?? message}${note}`);
  }
  return missing;
}
