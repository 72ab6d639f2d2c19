import type { Logger } from 'pino';
import { ApiKeys } from '../../auth/api-key.ts';
import type { Config } from '../../config/values/config.ts';
import { FileWatch } from '../../config/files/file-watch.ts';
import { StartError } from '../../errors.ts';
import type { Principal } from '../../policy/principal.ts';
import type { ApiKeyStore } from '../../store/api-key-store.ts';
import { diskApiKeyStore } from '../../store/disk/api-key-store.ts';
import type { KeyMetrics } from '../../telemetry/key-metrics.ts';
import { KeyFeed } from './key-feed.ts';

/** The key file is checked in this interval, besides events of the system, so that a revocation holds within a second. */
export const KEY_FILE_TIMES = { pollMs: 300, settleMs: 50, longestMs: 500 };
/** The time that keys of Redis stay valid while it cannot be read. docs/authentication.md names it. */
const REDIS_KEEP_MS = 600_000;

export interface ClientKeysParts {
  readonly metrics: KeyMetrics;
  readonly log: Logger;
  /** The keys in Redis; undefined without Redis. */
  readonly shared: ApiKeyStore | undefined;
  /**
   * Runs after the keys have changed.
   *
   * @param lost keys of the principals that have no API key any more.
   */
  readonly onChange: (lost: ReadonlySet<string>) => void;
}

/** Another config for the keys. Exactly one of its methods must be called. */
interface KeysChange {
  /** Accepts the keys of the config, and no others. */
  apply(): void;
  abandon(): Promise<void>;
}

type KeysConfig = Pick<Config, 'auth' | 'stateDir'>;

/** The API keys of clients that are accepted at this moment: those of the config, and those of a key file or of Redis. */
export class ClientKeys implements AsyncDisposable {
  readonly #parts: ClientKeysParts;
  #config: KeysConfig;
  #feed: KeyFeed | undefined;
  #current: ApiKeys;
  /** The principals that had a key when all keys could be read last. */
  #principals: ReadonlySet<string> = new Set();

  private constructor(config: KeysConfig, parts: ClientKeysParts) {
    this.#config = config;
    this.#parts = parts;
    this.#current = new ApiKeys([]);
  }

  /** Reads the keys of a config. @throws {StartError} if they cannot be used. */
  static async open(config: KeysConfig, parts: ClientKeysParts): Promise<ClientKeys> {
    const keys = new ClientKeys(config, parts);
    keys.#set(config, await keys.#openFeed(config));
    return keys;
  }

  get current(): ApiKeys {
    return this.#current;
  }

  /** The failure to read the key file or the keys in Redis, as a sentence; undefined while they can be read. */
  get failure(): string | undefined {
    return this.#feed?.failure;
  }

  /** Records that a key was used. @param nowMs ms since the epoch. */
  onUsed({ keyId }: Principal, nowMs: number): void {
    if (keyId !== undefined) this.#feed?.onUsed(keyId, nowMs);
  }

  /** Reads the keys of another config. @throws {StartError} if they cannot be used. Then nothing has changed. */
  async prepare(next: KeysConfig): Promise<KeysChange> {
    const { keyFile, keysInRedis } = this.#config.auth;
    const isSame = keyFile === next.auth.keyFile && keysInRedis === next.auth.keysInRedis;
    const feed = isSame ? this.#feed : await this.#openFeed(next);
    return {
      apply: () => {
        const before = this.#feed;
        this.#set(next, feed);
        if (!isSame) void before?.[Symbol.asyncDispose]();
      },
      abandon: async () => {
        if (!isSame) await feed?.[Symbol.asyncDispose]();
      },
    };
  }

  async #openFeed(config: KeysConfig): Promise<KeyFeed | undefined> {
    const found = this.#storeOf(config);
    if (found === undefined) return undefined;
    const feed: KeyFeed = await KeyFeed.open({
      ...found,
      metrics: this.#parts.metrics,
      log: this.#parts.log,
      onKeys: () => {
        if (feed === this.#feed) this.#set(this.#config, feed);
      },
      ids: () => this.#current.ids,
    });
    return feed;
  }

  #storeOf({ auth, stateDir }: KeysConfig): { readonly store: ApiKeyStore; readonly keepMs: number } | undefined {
    if (auth.keyFile !== undefined) {
      return { store: diskApiKeyStore({ file: auth.keyFile, stateDir, watchFile }), keepMs: Infinity };
    }
    if (auth.keysInRedis !== true) return undefined;
    const { shared: store } = this.#parts;
    if (store === undefined)
      throw new StartError('gateway.auth.keysInRedis takes effect with gateway.redis, at a restart');
    return { store, keepMs: REDIS_KEEP_MS };
  }

  #set(config: KeysConfig, feed: KeyFeed | undefined): void {
    const before = this.#current;
    this.#config = config;
    if (feed === undefined) this.#parts.metrics.clearKeys();
    else if (feed !== this.#feed) feed.activate();
    this.#feed = feed;
    this.#current = new ApiKeys(config.auth.apiKeys, feed?.keys, before);
    const { principals } = this.#current;
    const had = this.#principals;
    // Keys that cannot be read are refused, and not lost.
    if (feed?.isRefusing !== true) this.#principals = principals;
    this.#parts.onChange(new Set([...had].filter((key) => !this.#principals.has(key))));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#feed?.[Symbol.asyncDispose]();
  }
}

async function watchFile(file: string, onChange: () => void): Promise<Disposable> {
  const watch = new FileWatch(onChange, KEY_FILE_TIMES);
  await watch.setFiles(new Map([[file, undefined]]));
  return watch;
}
