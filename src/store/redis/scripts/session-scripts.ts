import { NOW_LUA, type Script, scriptOf } from '../connection.ts';
import { DROP_EVENTS_LUA, FORGET_LUA } from './event-scripts.ts';
import { REVOKE_LUA } from '../placement-table.ts';

/**
 * A change takes the room of so many sessions at once, since Redis serves nobody else meanwhile. The longest attachment needs that of fewer; older
 * versions leave entries that have none.
 */
const TURNS_AT_ONCE = 500;

/** Names the entries of a session, which each of these scripts gets in this order. */
const HEAD = `${NOW_LUA}
local record, sizes, ends, ended, placement, plain, attached = unpack(KEYS)
local serial = tonumber(ARGV[1])

local function parse(range)
  local first, last, untilMs = string.match(range, '^(%d+):(%d+):(%d+)$')
  return tonumber(first), tonumber(last), tonumber(untilMs)
end

local function text(number) return string.format('%.0f', number) end

-- Returns the range with this number, or undefined.
local function rangeOf(number)
  local range = redis.call('ZRANGEBYSCORE', ended, number, '+inf', 'LIMIT', 0, 1)[1]
  if range and parse(range) <= number then return range end
end${FORGET_LUA}

local function forgetAttachments(id)
  local bytes = redis.call('HGET', sizes, 'a' .. id)
  if bytes then
    redis.call('HDEL', sizes, 'a' .. id)
    redis.call('HINCRBY', sizes, 'attached', 0 - bytes)
  end
  redis.call('ZREM', attached, id)
end

local function forgetRecord(id)
  forget(id)
  forgetAttachments(id)
  redis.call('ZREM', plain, id)
end`;

/**
 * Returns the next serial number. Numbers of an earlier entry are lower, since no process opens a million sessions a second. A restarted Redis and a
 * promoted replica may have lost the last numbers, so that they do not count on from the kept one.
 */
export const NEXT_SERIAL: Script = scriptOf(`
local time = redis.call('TIME')
local serial = time[1] * 1000000 + time[2]
local info = redis.pcall('INFO', 'replication')
local server = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
if last > 0 then
  -- Consecutive numbers let the ranges of ended sessions join.
  local isSame = redis.call('GET', KEYS[2]) == server
  serial = isSame and last + 1 or math.max(last + 1, serial)
end
local text = string.format('%.0f', serial)
redis.call('SET', KEYS[1], text, 'PX', 86400000)
redis.call('SET', KEYS[2], server, 'PX', 86400000)
return text`);

/** Returns the fields of the record of a session that has not ended. */
export const LOAD: Script = scriptOf(`${HEAD}
if now >= tonumber(ARGV[2]) or rangeOf(serial) then return {} end
return redis.call('HGETALL', record)`);

export const IS_ENDED: Script = scriptOf(`${HEAD}
return rangeOf(serial) and 1 or 0`);

/**
 * Changes a record. The arguments after the serial number start with end of the id (ms) and placement of the writer. An empty one (`''`) is
 * refused. Then come kind of change, field or level, sealed value and bytes. The last are the greatest number of URIs, of bytes of all
 * records, and of all attachments. Returns `''`, `made-room` if others have lost something for it, `fenced`, or the name of a limit.
 * After `again` the change is sent once more, since it needs the room of more others than one call may take.
 *
 * As in memory, an attachment takes the room of those that were stored longest ago. Any change takes that of the oldest records without
 * subscriptions and attachments, and then that of the oldest attachments. Records of older versions are among these until they change.
 */
export const CHANGE: Script = scriptOf(`${HEAD}
local own, expires, fence, kind, field, value, bytes = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
if now >= expires or rangeOf(serial) then return '' end
if redis.call('GET', placement) ~= fence then return 'fenced' end

-- All records of the principal are in one slot.
local function recordOf(id) return string.sub(record, 1, -1 - #own) .. id end

local function size(part) return tonumber(redis.call('HGET', sizes, part) or 0) end

local function grow(id, by)
  redis.call('HINCRBY', sizes, id, by)
  redis.call('HINCRBY', sizes, 'total', by)
end

-- Entries about several records live as long as the last of them.
local function keep(entry) redis.call('PEXPIREAT', entry, text(redis.call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2] or now)) end

-- Puts a session among those that make room, or removes it from them. Returns whether its record may go. An empty record is deleted.
local function settle(id)
  local name = recordOf(id)
  if redis.call('HLEN', name) == redis.call('HEXISTS', name, 'order') + redis.call('HEXISTS', name, 'uris') then
    redis.call('DEL', name)
    forgetRecord(id)
    return false
  end
  local untilMs = redis.call('ZSCORE', ends, id)
  local uris = tonumber(redis.call('HGET', name, 'uris') or 0)
  local isPlain = untilMs and uris == 0 and not redis.call('ZSCORE', attached, id)
  if not isPlain then redis.call('ZREM', plain, id) return false end
  redis.call('ZADD', plain, untilMs, id)
  keep(plain)
  return true
end

local function detach(id)
  local name = recordOf(id)
  for _, each in ipairs(redis.call('HKEYS', name)) do
    local freed = string.sub(each, 1, 1) == 'a' and string.match(redis.call('HGET', name, each), '^%d+:(%d+):')
    if freed then
      redis.call('HDEL', name, each)
      grow(id, 0 - freed)
    end
  end
  forgetAttachments(id)
  settle(id)
end

-- Older versions put no record among those that make room. These are more than one call takes from them.
local function adopt()
  local from = redis.call('HGET', sizes, 'plain') or '-inf'
  local found = redis.call('ZRANGEBYSCORE', ends, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, ${2 * TURNS_AT_ONCE})
  if #found == 0 then return end
  for n = 1, #found, 2 do redis.call('ZADD', plain, found[n + 1], found[n]) end
  redis.call('HSET', sizes, 'plain', found[#found])
  keep(plain)
end

-- Returns the first other session.
local function firstOf(set)
  for _, id in ipairs(redis.call('ZRANGE', set, 0, 1)) do
    if id ~= own then return id end
  end
end

if kind == 'unsubscribe' then
  local old = redis.call('HGET', record, field)
  if not old then return '' end
  redis.call('HDEL', record, field)
  redis.call('HINCRBY', record, 'uris', -1)
  grow(own, 0 - string.match(old, '^%d+:(%d+):'))
  settle(own)
  return ''
end

if kind == 'level' then
  if redis.call('HGET', record, 'level') == field then return '' end
  if redis.call('HEXISTS', record, 'level') == 1 then bytes = 0 end
elseif kind ~= 'attach' and redis.call('HEXISTS', record, field) == 1 then
  return ''
end
local old = kind == 'attach' and redis.call('HGET', record, field)
local growth = bytes - (old and string.match(old, '^%d+:(%d+):') or 0)
if kind == 'subscribe' and tonumber(redis.call('HGET', record, 'uris') or 0) >= tonumber(ARGV[8]) then
  return 'subscriptionsPerSession'
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)) do forgetRecord(id) end
local reply, turns = '', ${TURNS_AT_ONCE}
local function isOver()
  turns = turns - 1
  return turns < 0
end
while kind == 'attach' and size('attached') + growth > tonumber(ARGV[10]) do
  if isOver() then return 'again' end
  local id = firstOf(attached)
  if not id then return 'sessionRecordBytesPerPrincipal' end
  detach(id)
  reply = 'made-room'
end
if size('total') + growth > tonumber(ARGV[9]) then adopt() end
while size('total') + growth > tonumber(ARGV[9]) do
  if isOver() then return 'again' end
  local oldest, id = firstOf(plain), firstOf(attached)
  if not oldest and not id then return 'sessionRecordBytesPerPrincipal' end
  if not oldest then
    detach(id)
    reply = 'made-room'
  elseif settle(oldest) then
    redis.call('DEL', recordOf(oldest))
    forgetRecord(oldest)
    reply = 'made-room'
  end
end

if kind == 'level' then
  redis.call('HSET', record, 'level', field)
else
  local order = redis.call('HINCRBY', record, 'order', 1)
  redis.call('HSET', record, field, order .. ':' .. bytes .. ':' .. value)
  if kind == 'subscribe' then redis.call('HINCRBY', record, 'uris', 1) end
end
grow(own, growth)
redis.call('ZADD', ends, expires, own)
if kind == 'attach' then
  redis.call('HINCRBY', sizes, 'a' .. own, growth)
  redis.call('HINCRBY', sizes, 'attached', growth)
  redis.call('ZADD', attached, time[1] * 1000000 + time[2], own)
  keep(attached)
end
settle(own)
redis.call('PEXPIREAT', record, ARGV[2])
keep(sizes)
keep(ends)
return reply`);

/**
 * Ends a session. The arguments after the serial number start with end of the id (ms), beginning of the channels and message to the owner.
 * Then come greatest number of ranges, the number that is left beyond it, and the longest validity of an id (ms). Two more keys: sizes and
 * ends of events. Returns 1 if ranges were joined.
 */
export const END: Script = scriptOf(`${HEAD}
local channels, told = ARGV[3], ARGV[4]
local most, left = tonumber(ARGV[5]), tonumber(ARGV[6])

-- Adds a range, and joins it with those that it overlaps or touches.
local function add(first, last, untilMs)
  for _, range in ipairs(redis.call('ZRANGEBYSCORE', ended, first - 1, '+inf', 'LIMIT', 0, 2)) do
    local otherFirst, otherLast, otherUntil = parse(range)
    if otherFirst <= last + 1 then
      redis.call('ZREM', ended, range)
      first, last, untilMs = math.min(first, otherFirst), math.max(last, otherLast), math.max(untilMs, otherUntil)
    end
  end
  redis.call('ZADD', ended, last, text(first) .. ':' .. text(last) .. ':' .. text(untilMs))
end

add(serial, serial, tonumber(ARGV[2]))
local joined = 0
if redis.call('ZCARD', ended) > most then
  for _, range in ipairs(redis.call('ZRANGE', ended, 0, -1)) do
    local _, _, untilMs = parse(range)
    if untilMs <= now then redis.call('ZREM', ended, range) end
  end
  local count = redis.call('ZCARD', ended)
  if count > most then
    local oldest = redis.call('ZRANGE', ended, 0, count - left)
    local first = parse(oldest[1])
    local _, last = parse(oldest[#oldest])
    redis.call('ZREM', ended, unpack(oldest))
    add(first, last, now + tonumber(ARGV[7]))
    joined = 1
  end
end
local latest = 0
local ttl = redis.call('PTTL', ended)
if ttl > 0 then latest = now + ttl end
latest = math.max(latest, joined == 1 and now + tonumber(ARGV[7]) or tonumber(ARGV[2]))
redis.call('PEXPIREAT', ended, text(latest))
forgetRecord(ARGV[1])
redis.call('DEL', record)
local eventSizes, eventEnds = KEYS[8], KEYS[9]
${DROP_EVENTS_LUA}
${REVOKE_LUA}
return joined`);
