import { LIMITS } from '../../limits.ts';
import type { OnOutcomeLimit, OutcomeStore } from '../outcome-store.ts';
import type { RedisAccess } from './access.ts';
import { NOW_LUA, scriptOf } from './connection.ts';

/** Stores an end, unless one is stored. Returns -1 if one is, else the number of ends that were removed for it. All entries are in one slot. */
const SETTLE = scriptOf(`${NOW_LUA}
if redis.call('EXISTS', KEYS[1]) == 1 then return -1 end
local bytes, most = #ARGV[1], tonumber(ARGV[3])

local function remove(entry)
  redis.call('DEL', entry)
  redis.call('ZREM', KEYS[2], entry)
  -- A plain minus would make -0 of 0, which Redis does not accept.
  redis.call('HINCRBY', KEYS[3], 'total', 0 - (redis.call('HGET', KEYS[3], entry) or 0))
  redis.call('HDEL', KEYS[3], entry)
end

for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do remove(entry) end
local removed = 0
while tonumber(redis.call('HGET', KEYS[3], 'total') or 0) + bytes > most do
  local entry = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not entry then break end
  remove(entry)
  removed = removed + 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], now + ARGV[2], KEYS[1])
redis.call('HSET', KEYS[3], KEYS[1], bytes)
redis.call('HINCRBY', KEYS[3], 'total', bytes)
for _, own in ipairs({KEYS[2], KEYS[3]}) do
  if redis.call('PTTL', own) < tonumber(ARGV[2]) then redis.call('PEXPIRE', own, ARGV[2]) end
end
return removed`);

/** Stores ends in Redis, encrypted. */
export function redisOutcomeStore({ connection, keys, box }: RedisAccess, onLimit: OnOutcomeLimit): OutcomeStore {
  return {
    settle: async (id, outcome, ttlMs) => {
      if (Buffer.byteLength(outcome) > LIMITS.outcomeBytes) {
        onLimit('outcomeBytes');
        return false;
      }
      const entries = keys.outcome(id);
      const args = [box.seal(entries[0], outcome), Math.ceil(ttlMs), LIMITS.outcomesBytes];
      const removed = await connection.run(SETTLE, entries, args);
      if (Number(removed) > 0) onLimit('outcomesBytes');
      return removed !== -1;
    },
    find: async (id) => {
      const [entry] = keys.outcome(id);
      const sealed = await connection.text('GET', entry);
      return sealed === undefined ? undefined : box.open(entry, sealed);
    },
  };
}
