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

/** The table in Redis. */
export interface RedisPlacementTable extends PlacementTable {
  /** Returns the message to the owner of a revoked placement. It is sealed, since it names a principal. */
  revokedText(key: PlacementKey): string;
}

export function redisPlacementTable({ connection, keys, box }: RedisAccess, leaseMs: number): RedisPlacementTable {
  const { members, revokedChannels } = keys;
  const entryOf = (id: string) => `${members[1]} ${id}`;
  /** Returns all members. Those whose entry our wrapping keys do not open keep what they have, and nothing is passed on to them. */
  const membersOf = (reply: unknown): readonly Member[] =>
    HASH_REPLY.parse(reply).map(([id, sealed]) => {
      const text = box.open(entryOf(id), sealed);
      return text === undefined ? unreadableMember(id) : { id, ...MEMBER.parse(JSON.parse(text)) };
    });
  const revokedText = ({ principal, name }: PlacementKey) =>
    box.seal(revokedChannels, JSON.stringify([principal, name]));
  return {
    leaseMs,
    join: async ({ id, process, address, version, isLeaving = false }) => {
      const described = { process, address, version, ...(isLeaving ? { isLeaving } : {}) };
      await connection.run(JOIN, members, [leaseMs, id, box.seal(entryOf(id), JSON.stringify(described))]);
    },
    renew: async (id) => {
      const reply = await connection.run(RENEW, members, [leaseMs, id]);
      return reply === null ? undefined : membersOf(reply);
    },
    leave: async (id) => {
      await connection.run(LEAVE, members, [id]);
    },
    members: async () => membersOf(await connection.run(MEMBERS, members, [leaseMs])),
    claim: async (key, member, from = '') =>
      parsePlacement(await connection.run(CLAIM, [keys.placement(key)], [member, from, PLACEMENT_MS])),
    confirm: async (key, placement) => {
      const args = [placementText(placement), PLACEMENT_MS];
      return (await connection.run(CONFIRM, [keys.placement(key)], args)) === 1;
    },
    release: async (key, placement, formerMs = 0) => {
      await connection.run(RELEASE, [keys.placement(key), keys.former(key)], [placementText(placement), formerMs]);
    },
    former: (key) => connection.text('GET', keys.former(key)),
    revoke: async (key) => {
      await connection.run(REVOKE, [keys.placement(key)], [revokedChannels, revokedText(key)]);
    },
    revokedText,
    watch: async (member, onRevoked, onMissed) => {
      const onText = (sealed: string) => {
        const text = box.open(revokedChannels, sealed);
        // Anybody with access to Redis can publish a text that is not ours, and another version one of another form.
        const { data } = KEY.safeParse(jsonOf(text ?? ''));
        if (data !== undefined) onRevoked({ principal: data[0], name: data[1] });
      };
      await connection.subscribe(keys.revokedChannel(member), { onText, onMissed });
    },
    unwatch: (member) => connection.unsubscribe(keys.revokedChannel(member)),
  };
}

function parsePlacement(reply: unknown): Placement {
  const text = z.string().parse(reply);
  const cut = text.lastIndexOf('/');
  return { member: text.slice(0, cut), token: text.slice(cut + 1) };
}
