import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../thrown.ts';
import type { Logger } from 'pino';
import { StartError } from '../../errors.ts';
import type { ApiKeyStore, StoredKey } from '../../store/api-key-store.ts';
import type { KeyMetrics } from '../../telemetry/key-metrics.ts';

/** Times of last use are stored in this interval, if there are new ones. */
const STORE_USES_MS = 60_000;
/** The pause after a failed read. */
const RETRY_MS = 1_000;

export interface KeyFeedParts {
  readonly store: ApiKeyStore;
  /**
   * The time that the last keys stay valid while the store cannot be read; Infinity for as long as the process runs. After it every key
   * of the store is refused.
   */
  readonly keepMs: number;
  readonly metrics: KeyMetrics;
  readonly log: Logger;
  /** Runs with the keys of the store after each change. */
  readonly onKeys: (keys: readonly StoredKey[]) => void;
  /** Returns the ids of all keys, to store times of use of no others. */
  readonly ids: () => ReadonlySet<string>;
}

/**
 * Follows the API keys of a store. Keys that cannot be read leave the last good ones in use, with an error in the log and in the metrics.
 */
export class KeyFeed implements AsyncDisposable {
  readonly #parts: KeyFeedParts;
  #keys: readonly StoredKey[];
  #isActive = false;
  #watch: Disposable | undefined;
  #reading: Promise<void> | undefined;
  /** True if another reading must follow the current one. */
  #isDue = false;
  #failure: string | undefined;
  #isRefusing = false;
  /** The time of the first failure since the last good reading. */
  #failingMs = 0;
  readonly #uses = new Map<string, number>();
  readonly #storing: NodeJS.Timeout;
  #retrying: NodeJS.Timeout | undefined;
  #isClosed = false;

  private constructor(parts: KeyFeedParts, keys: readonly StoredKey[]) {
    this.#parts = parts;
    this.#keys = keys;
    this.#storing = setInterval(() => void this.#storeUses(), STORE_USES_MS).unref();
  }

  /** Reads the keys, and follows them from then on. @throws {StartError} if they cannot be used. */
  static async open(parts: KeyFeedParts): Promise<KeyFeed> {
    const { store } = parts;
    let feed: KeyFeed | undefined;
    // The watch begins first, so that no change is missed.
    let isDue = false;
    const watch = await store.watch(() => {
      if (feed === undefined) isDue = true;
      else void feed.#read();
    });
    try {
      feed = new KeyFeed(parts, await store.read());
    } catch (thrown) {
      watch[Symbol.dispose]();
      throw new StartError(`API keys cannot be read: ${messageOf(thrown)}`, { cause: thrown });
    }
    feed.#watch = watch;
    if (isDue) void feed.#read();
    return feed;
  }

  /** The keys of the store as they were read last. */
  get keys(): readonly StoredKey[] {
    return this.#keys;
  }

  /** True while every key is refused because the store could not be read for too long. They may still be there. */
  get isRefusing(): boolean {
    return this.#isRefusing;
  }

  /** The failure to read the store, as a sentence; undefined while it can be read. */
  get failure(): string | undefined {
    if (this.#failure === undefined) return undefined;
    const effect = this.#isExpired() ? 'all of them are refused' : 'changes of them, and revocations, have no effect';
    return `API keys cannot be read, so ${effect}: ${this.#failure}`;
  }

  /** Returns whether reading has failed for too long. A process that stood still has not tried meanwhile. */
  #isExpired(): boolean {
    return performance.now() - this.#failingMs >= this.#parts.keepMs;
  }

  /** Reports further changes from now on. */
  activate(): void {
    this.#isActive = true;
    this.#parts.metrics.countKeyReading('applied', this.#keys.length);
  }

  /** Records that a key was used. @param nowMs ms since the epoch. */
  onUsed(id: string, nowMs: number): void {
    this.#uses.set(id, nowMs);
  }

  /** Reads the keys again; another call meanwhile makes it read once more. Does nothing after the end of the feed. Never rejects. */
  #read(): Promise<void> {
    this.#isDue = !this.#isClosed;
    this.#reading ??= this.#readWhileDue().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readWhileDue(): Promise<void> {
    while (this.#isDue) {
      this.#isDue = false;
      try {
        this.#onRead(await this.#parts.store.read());
      } catch (thrown) {
        this.#onFailure(thrown);
      }
    }
  }

  #onRead(keys: readonly StoredKey[]): void {
    if (this.#isClosed) return;
    const { metrics, log, store, onKeys } = this.#parts;
    const hadFailed = this.#failure !== undefined;
    // A store may return the same list if nothing has changed.
    const hasChanged = this.#isRefusing || (keys !== this.#keys && !isDeepStrictEqual(keys, this.#keys));
    this.#failure = undefined;
    this.#isRefusing = false;
    this.#keys = keys;
    if (!this.#isActive || (!hadFailed && !hasChanged)) return;
    metrics.countKeyReading('applied', keys.length);
    if (!hasChanged) {
      log.info({ place: store.place, keys: keys.length }, 'API keys are read again');
      return;
    }
    log.info({ place: store.place, keys: keys.length }, 'API keys changed');
    onKeys(keys);
  }

  #onFailure(thrown: unknown): void {
    if (this.#isClosed) return;
    const { metrics, log, store, onKeys, keepMs } = this.#parts;
    metrics.countKeyReading('rejected', this.#keys.length);
    const reason = messageOf(thrown);
    if (this.#failure === undefined) this.#failingMs = performance.now();
    if (reason !== this.#failure) {
      log.error({ place: store.place, reason }, 'API keys cannot be read; the last good ones stay valid for now');
    }
    this.#failure = reason;
    // A watched file tells of each change once.
    this.#retrying ??= setTimeout(() => {
      this.#retrying = undefined;
      void this.#read();
    }, RETRY_MS).unref();
    if (!this.#isExpired() || this.#keys.length === 0) return;
    log.error({ place: store.place, keepMs }, 'API keys could not be read for too long; all of them are refused');
    this.#keys = [];
    this.#isRefusing = true;
    if (this.#isActive) onKeys([]);
  }

  async #storeUses(): Promise<void> {
    if (this.#uses.size === 0) return;
    const uses = new Map(this.#uses);
    this.#uses.clear();
    const { store, log, ids } = this.#parts;
    await store.storeUses(uses, ids()).catch((thrown: unknown) => {
      log.warn({ reason: messageOf(thrown) }, 'times of last use of API keys cannot be stored');
      for (const [id, ms] of uses) if (!this.#uses.has(id)) this.#uses.set(id, ms);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    this.#isDue = false;
    clearInterval(this.#storing);
    clearTimeout(this.#retrying);
    this.#watch?.[Symbol.dispose]();
    await this.#reading;
    await this.#storeUses();
  }
}
