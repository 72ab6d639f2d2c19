import { messageOf } from '../../thrown.ts';
import { randomUUID } from 'node:crypto';
import { GatewayError, StartError } from '../../errors.ts';
import { type RedisConnection, scriptOf } from './connection.ts';
import { hashOf } from '../placement-table.ts';
import type { RedisKeys } from './keys.ts';

const LEAST_VERSION = 7;
const MAX_SKEW_MS = 30_000;

/** Uses each kind of command that the gateway needs, on an entry of its own. */
const TRY = scriptOf(`
redis.call('SET', KEYS[1], '1', 'PX', 1000)
redis.call('GET', KEYS[1])
redis.call('PEXPIRE', KEYS[1], 1000)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'a', '1')
redis.call('HGETALL', KEYS[1])
redis.call('HINCRBY', KEYS[1], 'a', 1)
redis.call('HDEL', KEYS[1], 'a')
redis.call('ZADD', KEYS[1], 1, 'a')
redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', 1)
redis.call('ZREM', KEYS[1], 'a')
redis.call('PUBLISH', ARGV[1], '')
return redis.call('TIME')`);

/**
 * Checks the version, the eviction policy, the rights and the clock of Redis.
 *
 * @throws {StartError} that says what to change.
 */
export async function checkRedis(connection: RedisConnection, keys: RedisKeys, nowMs: () => number): Promise<void> {
  const facts = await factsOf(connection);
  const version = facts.get('redis_version') ?? '';
  if (Number.parseInt(version, 10) < LEAST_VERSION) {
    throw new StartError(
      `Redis ${version} is too old (gateway.redis.url): version ${LEAST_VERSION} or newer is needed`,
    );
  }
  const policy = facts.get('maxmemory_policy') ?? 'noeviction';
  if (policy !== 'noeviction') {
    throw new StartError(
      `Redis has maxmemory-policy ${policy} (gateway.redis.url), so that it would remove sessions when it is full. Set it to noeviction`,
    );
  }
  await checkRights(connection, keys);
  const skewMs = await skewOf(connection, nowMs);
  if (Math.abs(skewMs) > MAX_SKEW_MS) {
    const seconds = Math.round(Math.abs(skewMs) / 1_000);
    const direction = skewMs > 0 ? 'behind' : 'ahead of';
    throw new StartError(
      `the clock of this machine is ${seconds} s ${direction} that of Redis; set both by NTP. At most ${MAX_SKEW_MS / 1_000} s are allowed`,
    );
  }
}

/** Returns the values that Redis reports about itself, by name. */
async function factsOf(connection: RedisConnection): Promise<ReadonlyMap<string, string>> {
  const sections = [];
  for (const section of ['server', 'memory']) {
    const text = await needing(`INFO ${section}`, () => connection.command('INFO', section));
    sections.push(String(text));
  }
  const pairs = sections.join('\n').matchAll(/^(\w+):(.*?)\r?$/gm);
  return new Map([...pairs].map(([, name = '', value = '']) => [name, value]));
}

async function checkRights(connection: RedisConnection, keys: RedisKeys): Promise<void> {
  const name = `try-${randomUUID()}`;
  const channel = keys.revokedChannel(name);
  await needing('scripts and all commands in them', () =>
    connection.run(TRY, [keys.counter(hashOf([name]))], [channel]),
  );
  for (const [one, name] of [
    [channel, `${keys.revokedChannels}*`],
    [keys.offersChannel, keys.offersChannel],
  ] as const) {
    await needing(`SUBSCRIBE to ${name}`, () =>
      connection.subscribe(one, { onText: () => undefined, onMissed: () => undefined }),
    );
    await connection.unsubscribe(one);
  }
}

/** Returns how much later the clock of Redis is, in ms. */
async function skewOf(connection: RedisConnection, nowMs: () => number): Promise<number> {
  const before = nowMs();
  const reply = await needing('TIME', () => connection.command('TIME'));
  const [seconds, micros]: unknown[] = Array.isArray(reply) ? reply : [];
  const between = (before + nowMs()) / 2;
  return Number(seconds) * 1_000 + Number(micros) / 1_000 - between;
}

/** Runs a command. @throws {StartError} with its name if the user of Redis may not use it. */
async function needing<T>(what: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (thrown) {
    const cause = thrown instanceof GatewayError ? thrown.cause : thrown;
    const why = messageOf(cause);
    if (!/NOPERM|no permissions|user executing the script can't/i.test(why))
      throw new StartError(`Redis cannot be used (gateway.redis.url): ${why}`, { cause });
    throw new StartError(
      `the user of gateway.redis.url may not use what the gateway needs: ${what}. docs/replicas.md has the ACL rule (${why})`,
      { cause },
    );
  }
}
