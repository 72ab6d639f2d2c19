import { NOW_LUA, type Script, scriptOf } from '../connection.ts';

/** The time that a release is remembered whose claim may still arrive. TCP sends the bytes of a connection again for less than this. */
const LATE_MS = 1_800_000;

/**
 * Scripts for calls with idempotency keys. All entries are in one slot:
 *
 * - `KEYS[1]`: the call. `c` and a claim while it runs; `r` and its sealed outcome, or `r` alone, after its end.
 * - `KEYS[2]`: sorted set of all calls, by the time at which they expire.
 * - `KEYS[3]`: hash. By call: the bytes of its outcome. `n` and `b` with the name of a principal: its calls, and their bytes. `b`: all bytes.
 * - `KEYS[4]`: sorted set of the calls with outcomes, by time; with `:` and the name of a principal: those of the principal.
 * - the call, `:` and a claim: this claim was released, and was not there yet.
 *
 * The name of a call ends in `:`, the name of its principal, `:` and a name of its own.
 */
const COMMON = `${NOW_LUA}
local call, calls, sizes, outcomes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function principalOf(entry) return string.match(entry, ':([^:]+):[^:]+$') end

local function add(field, amount)
  if redis.call('HINCRBY', sizes, field, amount) <= 0 then redis.call('HDEL', sizes, field) end
end

local function drop(entry)
  local principal = principalOf(entry)
  local bytes = tonumber(redis.call('HGET', sizes, entry) or 0)
  redis.call('ZREM', outcomes, entry)
  redis.call('ZREM', outcomes .. ':' .. principal, entry)
  if bytes == 0 then return end
  redis.call('HDEL', sizes, entry)
  add('b', -bytes)
  add('b' .. principal, -bytes)
end

local function remove(entry)
  drop(entry)
  redis.call('DEL', entry)
  if redis.call('ZREM', calls, entry) == 1 then add('n' .. principalOf(entry), -1) end
end

-- Entries about several calls live as long as the last of them.
local function keep(entry, ms)
  if redis.call('PTTL', entry) < tonumber(ms) then redis.call('PEXPIRE', entry, ms) end
end
`;

/** Claims a call. Expired calls are removed, at most 100 at a time. Returns `+`, the value of a call that is known, or `f` if there are too many. */
export const CLAIM: Script = scriptOf(`${COMMON}
local claim, ms, mostOfPrincipal, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', calls, '-inf', now, 'LIMIT', 0, 100)) do remove(entry) end
local known = redis.call('GET', call)
if known == 'c' .. claim then return '+' end
if known then return known end
-- A claim without a reply comes after its release if the connection was made again between them. Nobody makes its call.
if redis.call('EXISTS', call .. ':' .. claim) == 1 then return 'c' .. claim end
-- The entry may have expired a moment before its place in the set.
remove(call)
local counter = 'n' .. principalOf(call)
if tonumber(redis.call('HGET', sizes, counter) or 0) >= mostOfPrincipal then return 'fprincipal' end
if redis.call('ZCARD', calls) >= most then return 'fall' end
redis.call('SET', call, 'c' .. claim, 'PX', ms)
redis.call('ZADD', calls, now + ms, call)
add(counter, 1)
keep(calls, ms)
keep(sizes, ms)
return '+'`);

/** Stores the end of a call. Returns `p` if other outcomes of the principal were removed, `a` if any were, both, or nothing. */
export const END: Script = scriptOf(`${COMMON}
local claim, outcome, ms, mostOfPrincipal, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('GET', call) ~= 'c' .. claim then return '' end
redis.call('SET', call, 'r' .. outcome, 'PX', ms)
redis.call('ZADD', calls, now + ms, call)
keep(calls, ms)
keep(sizes, ms)
if outcome == '' then return '' end
local principal = principalOf(call)
local own = outcomes .. ':' .. principal

local function makeRoom(set, field, limit, mark)
  local removed = ''
  while tonumber(redis.call('HGET', sizes, field) or 0) + #outcome > limit do
    local entry = redis.call('ZRANGE', set, 0, 0)[1]
    if not entry then break end
    drop(entry)
    -- It keeps the time at which it expires.
    redis.call('SET', entry, 'r', 'XX', 'KEEPTTL')
    removed = mark
  end
  return removed
end

local removed = makeRoom(own, 'b' .. principal, mostOfPrincipal, 'p') .. makeRoom(outcomes, 'b', most, 'a')
redis.call('HSET', sizes, call, #outcome)
add('b', #outcome)
add('b' .. principal, #outcome)
-- In microseconds: outcomes of one millisecond would be ordered by their names.
local at = time[1] * 1000000 + time[2]
redis.call('ZADD', outcomes, at, call)
redis.call('ZADD', own, at, call)
keep(outcomes, ms)
keep(own, ms)
return removed`);

/** Removes a call if this claim holds it. If not, the claim will never hold it: it may arrive later. */
export const RELEASE: Script = scriptOf(`${COMMON}
local claim = ARGV[1]
if redis.call('GET', call) == 'c' .. claim then
  remove(call)
else
  -- A full Redis has answered the claim, which is not late then.
  redis.pcall('SET', call .. ':' .. claim, '', 'PX', ${LATE_MS})
end
return 1`);
