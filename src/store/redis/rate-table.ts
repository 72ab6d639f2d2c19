import { z } from 'zod';
import type { RateTable, TakenUnits } from '../rate-table.ts';
import { takeFrom } from '../rate-limiter.ts';
import type { RedisAccess } from './access.ts';
import { type RedisConnection, type Script, scriptOf } from './connection.ts';
import type { RedisKeys } from './keys.ts';

const REPLY = z.tuple([z.int(), z.int()]);

/** Counts in Redis. The library has the script and the arithmetic; our connection has deadlines, the breaker and clusters. */
export class RedisRateTable implements RateTable {
  readonly #connection: RedisConnection;
  readonly #keys: RedisKeys;
  readonly #client: LimiterClient;

  constructor({ connection, keys }: RedisAccess) {
    this.#connection = connection;
    this.#keys = keys;
    this.#client = new LimiterClient(connection);
  }

  async take(counter: string, units: number, limit: number, windowMs: number): Promise<TakenUnits> {
    const { RateLimiterRedis } = await import('../libraries/rate-limiters.ts');
    const duration = windowMs / 1_000;
    const limiter = new RateLimiterRedis({ storeClient: this.#client, keyPrefix: '', points: limit, duration });
    const key = this.#keys.rate(counter);
    const taken = await takeFrom(limiter, key, units, limit);
    // The clock of Redis was set back: the counter would stay for as long.
    if (taken.endsInMs > windowMs) await this.#connection.command('PEXPIRE', key, windowMs);
    return taken;
  }
}

/** The part of a Redis client that the library calls. */
class LimiterClient {
  readonly #connection: RedisConnection;
  #script: Script | undefined;

  constructor(connection: RedisConnection) {
    this.#connection = connection;
  }

  /** Receives the script of the library. */
  defineCommand(_name: string, { lua }: { readonly lua: string }): void {
    this.#script ??= scriptOf(lua);
  }

  /** Runs the script for a key. @param args the key, the units, and the window in seconds. */
  async rlflxIncr([key = '', ...args]: readonly string[]): Promise<readonly number[]> {
    if (this.#script === undefined) throw new TypeError('the library has defined no script');
    return REPLY.parse(await this.#connection.run(this.#script, [key], args.slice(0, 2)));
  }
}
