import { z } from 'zod';
import type { RateTable, TakenUnits } from '../rate-table.ts';
import { takeFrom } from '../rate-limiter.ts';
import type { RedisAccess } from './access.ts';
import { type RedisConnection, type Script, scriptOf } from './connection.ts';
import type { RedisKeys } from './keys.ts';

const REPLY = z.tuple([z.int(), z.int()]);

/**
 * Takes units, as many as are left. Its arguments are the units, the window in seconds, and the limit. Replies with the sum of the units that
 * were taken before and those that are wanted now, as the script of the library does. That one also keeps the units beyond the limit, which a
 * higher limit would then lack.
 */
const TAKE = `
redis.call('SET', KEYS[1], 0, 'EX', ARGV[2], 'NX')
local taken, wanted, limit = tonumber(redis.call('GET', KEYS[1])), tonumber(ARGV[1]), tonumber(ARGV[3])
local units = math.max(0, math.min(wanted, limit - taken))
if units > 0 then redis.call('INCRBY', KEYS[1], string.format('%.0f', units)) end
return {taken + wanted, redis.call('PTTL', KEYS[1])}`;

/** Counts in Redis. The library has the arithmetic; our connection has deadlines, the breaker and clusters. */
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
    const script = { storeClient: this.#client, customIncrTtlLuaScript: TAKE };
    const limiter = new RateLimiterRedis({ ...script, keyPrefix: '', points: limit, duration });
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

  /** Receives the script that the library runs. */
  defineCommand(_name: string, { lua }: { readonly lua: string }): void {
    this.#script ??= scriptOf(lua);
  }

  /** Runs the script for a key. @param args the key, the units, the window in seconds, and the limit. */
  async rlflxIncr([key = '', ...args]: readonly string[]): Promise<readonly number[]> {
    if (this.#script === undefined) throw new TypeError('the library has defined no script');
    return REPLY.parse(await this.#connection.run(this.#script, [key], args.slice(0, 3)));
  }
}
