import { z } from 'zod';
import type { CounterTable } from '../counter-table.ts';
import type { RedisAccess } from './access.ts';
import { NOW_LUA, scriptOf } from './connection.ts';

const LEASE = scriptOf(`${NOW_LUA}
local process, wanted, limit, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = redis.call('HGETALL', KEYS[1])
local others = 0
for i = 1, #fields, 2 do
  local units, untilMs = string.match(fields[i + 1], '^(%d+):(%d+)$')
  if tonumber(untilMs) <= now then redis.call('HDEL', KEYS[1], fields[i])
  elseif fields[i] ~= process then
    others = others + tonumber(units)
    -- The clock was set back. Units of a process that has died would stay for as long.
    if tonumber(untilMs) > now + lease then
      redis.call('HSET', KEYS[1], fields[i], string.format('%s:%.0f', units, now + lease))
    end
  end
end
local units = math.max(0, math.min(wanted, limit - others))
if units > 0 then
  redis.call('HSET', KEYS[1], process, string.format('%.0f:%.0f', units, now + lease))
  redis.call('PEXPIRE', KEYS[1], lease * 2)
else
  redis.call('HDEL', KEYS[1], process)
end
return units`);

export function redisCounterTable({ connection, keys }: RedisAccess, leaseMs: number): CounterTable {
  return {
    leaseMs,
    lease: async (counter, process, wanted, limit) =>
      z.int().parse(await connection.run(LEASE, [keys.counter(counter)], [process, wanted, limit, leaseMs])),
  };
}
