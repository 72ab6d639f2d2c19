import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { ApiKeys } from '../../auth/api-key.ts';
import type { Config } from '../../config/values/config.ts';
import type { ApiKeyStore } from '../../store/api-key-store.ts';
import { diskApiKeyStore } from '../../store/disk/api-key-store.ts';
import { CliError, EXIT } from '../operator/cli-error.ts';
import { loadForReading } from '../start.ts';

/** The options that choose the keys to work on. */
export interface StoreOptions {
  /** The config file. Default: found by itself. */
  readonly config?: string;
  /** A key file, without any config. */
  readonly file?: string;
}

/** The keys of a config, until they are disposed. */
interface OpenStore extends AsyncDisposable {
  readonly store: ApiKeyStore;
  /** True if the key file does not exist yet. */
  readonly isNew?: boolean;
}

/**
 * Opens the keys of a config, or a key file.
 *
 * @throws {ConfigError} if the config cannot be used; {CliError} if it keeps no keys, or Redis cannot be reached.
 */
export async function openKeyStore(options: StoreOptions): Promise<OpenStore> {
  if (options.file !== undefined) return onDisk(resolve(options.file), undefined);
  const { config } = await loadForReading(options);
  const open = await openStoreOf(config);
  if (open !== undefined) return open;
  const how = 'set gateway.auth.keyFile to a path, such as keys.json, or gateway.auth.keysInRedis to true';
  throw new CliError(EXIT.failed, `${config.file} keeps no API keys that commands can change; ${how}`);
}

/** Opens the keys that commands change; undefined if the config has none. @throws {CliError} if Redis cannot be reached. */
async function openStoreOf({ auth, stateDir, redis }: Config): Promise<OpenStore | undefined> {
  if (auth.keyFile !== undefined) return onDisk(auth.keyFile, stateDir);
  if (auth.keysInRedis !== true || redis === undefined) return undefined;
  const { openRedisKeys } = await import('../../compose/keys/open-redis-keys.ts');
  return await openRedisKeys(redis);
}

/**
 * Reads the API keys that a gateway with this config accepts: those of the config, and those of its key file or of Redis.
 *
 * @throws {CliError} if they cannot be read.
 */
export async function readKeys(config: Config): Promise<ApiKeys> {
  await using open = await openStoreOf(config);
  try {
    return new ApiKeys(config.auth.apiKeys, await open?.store.read());
  } catch (thrown) {
    throw new CliError(EXIT.failed, thrown instanceof Error ? thrown.message : 'API keys cannot be read');
  }
}

function onDisk(file: string, stateDir: string | undefined): OpenStore {
  const store = diskApiKeyStore({
    file,
    stateDir,
    watchFile: () => Promise.reject(new Error('commands do not watch keys')),
  });
  return {
    store,
    isNew: statSync(file, { throwIfNoEntry: false }) === undefined,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
