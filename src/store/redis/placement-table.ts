import { jsonOf } from '../../json/record.ts';
import { z } from 'zod';
import {
  type Member,
  type Placement,
  type PlacementKey,
  type PlacementTable,
  placementText,
  unreadableMember,
} from '../placement-table.ts';
import { HASH_REPLY, type RedisAccess } from './access.ts';
import { scriptOf } from './connection.ts';

/** A placement that its owner does not confirm is free after this time. It passes while Redis cannot be reached too, so it is a long one. */
const PLACEMENT_MS = 3_600_000;

/**
 * Sets `now` to the time that leases are measured with: the clock of Redis, without the parts in which nobody could renew a lease. Between two
 * scripts it advances by a fifth of a lease at most, and never backwards. So no lease lapses because Redis was stopped or full, or its clock was
 * set, and none lasts longer for that. A full Redis does not store the time, but its members can be listed. The first argument of each script is
 * the time that a lease lasts.
 */
const NOW = `
local lease = tonumber(ARGV[1])
local time = redis.call('TIME')
local at = time[1] * 1000 + math.floor(time[2] / 1000)
local before, now = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+):(%d+)$')
now = tonumber(now) or at
now = now + math.max(0, math.min(at - (tonumber(before) or at), math.floor(lease / 5)))
local stored = redis.pcall('SET', KEYS[3], string.format('%.0f:%.0f', at, now))
if stored.err and not string.find(stored.err, 'OOM', 1, true) then return stored end`;

/** Removes lapsed members, and returns the others as pairs of id and sealed description. */
const LIST = `
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
return redis.call('HGETALL', KEYS[2])`;

const JOIN = scriptOf(`${NOW}
redis.call('ZADD', KEYS[1], now + lease, ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])`);

const RENEW = scriptOf(`${NOW}
local ends = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not ends or tonumber(ends) <= now then return false end
redis.call('ZADD', KEYS[1], now + lease, ARGV[2])
${LIST}`);

const MEMBERS = scriptOf(`${NOW}${LIST}`);

const LEAVE = scriptOf(`
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])`);

const CLAIM = scriptOf(`
local held = redis.call('GET', KEYS[1])
if held then
  local owner = string.match(held, '^(.*)/')
  if owner ~= ARGV[2] then
    if owner == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
    return held
  end
end
local time = redis.call('TIME')
local claimed = ARGV[1] .. '/' .. time[1] .. string.format('%06d', time[2])
redis.call('SET', KEYS[1], claimed, 'PX', ARGV[3])
return claimed`);

const CONFIRM = scriptOf(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`);

const RELEASE = scriptOf(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '0' then redis.call('SET', KEYS[2], string.match(ARGV[1], '^(.*)/'), 'PX', ARGV[2]) end`);

/**
 * Lua that frees the placement `placement`, and tells its owner. `channels` is the beginning of the channels.
 *
 * @see RedisKeys.revokedChannel
 */
export const REVOKE_LUA = `
local held = redis.call('GET', placement)
if held then
  redis.call('DEL', placement)
  redis.call('PUBLISH', channels .. string.match(held, '^(.*)/'), told)
end`;

const REVOKE = scriptOf(`local placement, channels, told = KEYS[1], ARGV[1], ARGV[2]\n${REVOKE_LUA}`);

const MEMBER = z.object({
  process: z.string(),
  address: z.string(),
  version: z.string(),
  isLeaving: z.literal(true).exactOptional(),
});
const KEY = z.tuple([z.string(), z.string()]);

export class RedisPlacementTable implements PlacementTable {
  readonly leaseMs: number;
  readonly #redis: RedisAccess;

  constructor(redis: RedisAccess, leaseMs: number) {
    this.#redis = redis;
    this.leaseMs = leaseMs;
  }

  async join({ id, process, address, version, isLeaving = false }: Member): Promise<void> {
    const described = { process, address, version, ...(isLeaving ? { isLeaving } : {}) };
    const sealed = this.#redis.box.seal(this.#entryOf(id), JSON.stringify(described));
    await this.#redis.connection.run(JOIN, this.#redis.keys.members, [this.leaseMs, id, sealed]);
  }

  async renew(id: string): Promise<readonly Member[] | undefined> {
    const reply = await this.#redis.connection.run(RENEW, this.#redis.keys.members, [this.leaseMs, id]);
    return reply === null ? undefined : this.#membersOf(reply);
  }

  async leave(id: string): Promise<void> {
    await this.#redis.connection.run(LEAVE, this.#redis.keys.members, [id]);
  }

  async members(): Promise<readonly Member[]> {
    return this.#membersOf(await this.#redis.connection.run(MEMBERS, this.#redis.keys.members, [this.leaseMs]));
  }

  /** Returns all members. Those whose entry our wrapping keys do not open keep what they have, and nothing is passed on to them. */
  #membersOf(reply: unknown): readonly Member[] {
    return HASH_REPLY.parse(reply).map(([id, sealed]) => {
      const text = this.#redis.box.open(this.#entryOf(id), sealed);
      return text === undefined ? unreadableMember(id) : { id, ...MEMBER.parse(JSON.parse(text)) };
    });
  }

  #entryOf(id: string): string {
    const [, info] = this.#redis.keys.members;
    return `${info} ${id}`;
  }

  async claim(key: PlacementKey, member: string, from = ''): Promise<Placement> {
    const args = [member, from, PLACEMENT_MS];
    return parsePlacement(await this.#redis.connection.run(CLAIM, [this.#redis.keys.placement(key)], args));
  }

  async confirm(key: PlacementKey, placement: Placement): Promise<boolean> {
    const args = [placementText(placement), PLACEMENT_MS];
    return (await this.#redis.connection.run(CONFIRM, [this.#redis.keys.placement(key)], args)) === 1;
  }

  async release(key: PlacementKey, placement: Placement, formerMs = 0): Promise<void> {
    const entries = [this.#redis.keys.placement(key), this.#redis.keys.former(key)];
    await this.#redis.connection.run(RELEASE, entries, [placementText(placement), formerMs]);
  }

  async former(key: PlacementKey): Promise<string | undefined> {
    return await this.#redis.connection.text('GET', this.#redis.keys.former(key));
  }

  async revoke(key: PlacementKey): Promise<void> {
    const args = [this.#redis.keys.revokedChannels, this.revokedText(key)];
    await this.#redis.connection.run(REVOKE, [this.#redis.keys.placement(key)], args);
  }

  /** Returns the message to the owner of a revoked placement. It is sealed, since it names a principal. */
  revokedText({ principal, name }: PlacementKey): string {
    return this.#redis.box.seal(this.#redis.keys.revokedChannels, JSON.stringify([principal, name]));
  }

  async watch(member: string, onRevoked: (key: PlacementKey) => void, onMissed: () => void): Promise<void> {
    const onText = (sealed: string) => {
      const text = this.#redis.box.open(this.#redis.keys.revokedChannels, sealed);
      // Anybody with access to Redis can publish a text that is not ours, and another version one of another form.
      const { data } = KEY.safeParse(jsonOf(text ?? ''));
      if (data !== undefined) onRevoked({ principal: data[0], name: data[1] });
    };
    await this.#redis.connection.subscribe(this.#redis.keys.revokedChannel(member), { onText, onMissed });
  }

  async unwatch(member: string): Promise<void> {
    await this.#redis.connection.unsubscribe(this.#redis.keys.revokedChannel(member));
  }
}

function parsePlacement(reply: unknown): Placement {
  const text = z.string().parse(reply);
  const cut = text.lastIndexOf('/');
  return { member: text.slice(0, cut), token: text.slice(cut + 1) };
}
