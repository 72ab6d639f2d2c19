import { join } from 'node:path';
import { debianPackages, installedProgram, libraryEnvironment } from './programs.ts';

/** The programs of Redis with the libraries that a slim Debian lacks. */
const PACKAGES = ['redis-tools', 'redis-server', 'libjemalloc2', 'liblzf1', 'libatomic1'];

/** The path of `redis-server`, and the environment that it needs. */
export interface RedisProgram {
  readonly server: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Returns the reason why there is no `redis-server`; undefined if there is one, which may be downloaded for it. */
export async function missingRedis(): Promise<string | undefined> {
  try {
    await findRedis();
    return undefined;
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
}

/** Returns the `redis-server` of the machine, or else that of Debian's package. @throws {Error} if neither can be had. */
export async function findRedis(): Promise<RedisProgram> {
  const installed = installedProgram('redis-server');
  if ('path' in installed) return { server: installed.path, env: {} };
  const unpacked = await debianPackages(PACKAGES);
  if ('missing' in unpacked) throw new Error(`redis-server is not installed, and ${unpacked.missing}`);
  return { server: join(unpacked.path, 'usr/bin/redis-server'), env: libraryEnvironment(unpacked.path) };
}
