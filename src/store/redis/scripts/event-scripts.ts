import { NOW_LUA, type Script, scriptOf } from '../connection.ts';

/** A client can resume a stream for this long after its end; one without an end, for this long after an event. */
const KEEP_MS = 300_000;
/** Events of a stream that has not ended are kept this long after the last one. */
const UNFINISHED_MS = 3_600_000;
/** Memory of a stream, and of an event, in Redis besides its text. */
const STREAM_BYTES = 512;
const EVENT_BYTES = 96;

/** Functions about the streams of the session whose index is `index`, in the slot of its principal. */
const STREAMS = `
-- Adds 0, since minus zero is no integer for Redis.
local function text(number) return string.format('%.0f', number + 0) end
local function total(field) return tonumber(redis.call('HGET', index, field) or 0) end
local function grow(field, by) redis.call('HINCRBY', index, field, text(by)) end

local function find(stream)
  local known = redis.call('HGET', index, stream)
  if not known then return nil end
  local endless, opened, count, bytes, added, last, writer = string.match(known, '^(%d):(%d+):(%d+):(%d+):(%d+):(%d*):(.*)$')
  if not endless then return nil end
  return { endless = endless, opened = tonumber(opened), count = tonumber(count), bytes = tonumber(bytes), added = tonumber(added), last = last, writer = writer }
end

local function save(stream, s)
  redis.call('HSET', index, stream, table.concat({ s.endless, text(s.opened), text(s.count), text(s.bytes), text(s.added), s.last, s.writer }, ':'))
end

local function shrink(s, count, bytes)
  s.count = s.count - count
  s.bytes = s.bytes - bytes
  grow('#events', -count)
  grow('#bytes', -bytes)
end

local function remove(stream)
  local s = find(stream)
  if not s then return end
  redis.call('DEL', index .. ':' .. stream)
  redis.call('HDEL', index, stream)
  redis.call('ZREM', index .. '#ended', stream)
  grow('#bytes', -${STREAM_BYTES})
  if s.last == '' and s.endless == '0' then grow('#running', -1) end
  shrink(s, s.count, s.bytes)
end`;

/** A function that removes an entry from `sizes`, which has the bytes of each, and from `ends`. */
export const FORGET_LUA = `
local function forget(id)
  local size = redis.call('HGET', sizes, id)
  if size then
    redis.call('HDEL', sizes, id)
    -- A plain minus would make -0 of 0, which Redis does not accept.
    redis.call('HINCRBY', sizes, 'total', 0 - size)
  end
  redis.call('ZREM', ends, id)
end`;

/** Functions about the sessions of a principal. `sizes` and `ends` have their bytes, and the times when their events expire. */
const SESSIONS = `${FORGET_LUA}
-- Removes all events of a session.
local function drop(serial)
  local name = sizes .. ':' .. serial
  for _, stream in ipairs(redis.call('HKEYS', name)) do redis.call('DEL', name .. ':' .. stream) end
  redis.call('DEL', name, name .. '#ended')
  forget(serial)
end

local function expire(now)
  for _, serial in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)) do forget(serial) end
end

local function own() return tonumber(redis.call('HGET', sizes, 'total') or 0) end`;

/**
 * Applies changes. The keys: placement of the session, its index, the sizes and the ends of its principal. The arguments start with
 * placement of this process, serial number and end of the id (ms). Then come the greatest number of events and of bytes of the session, of
 * bytes of the principal, and the changes. Returns
 * `{streams of other writers, number of sessions whose events were removed, bytes of the principal, their end (ms)}`.
 */
export const WRITE_EVENTS: Script = scriptOf(`
local index, sizes, ends = KEYS[2], KEYS[3], KEYS[4]
local isOwner = redis.call('GET', KEYS[1]) == ARGV[1]
local serial, expires = ARGV[2], tonumber(ARGV[3])
local mostEvents, mostBytes, mostOwn = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local refused = {}
${NOW_LUA}${STREAMS}${SESSIONS}

local function isRefused(s, stream, writer)
  if s and s.writer == writer then return false end
  if s then refused[stream] = true end
  return true
end

local function open(stream, writer, endless)
  local s = find(stream)
  if s then isRefused(s, stream, writer) end
  -- A process that has lost the session opens no stream here.
  if s or not isOwner then return end
  save(stream, { endless = endless, opened = now, count = 0, bytes = 0, added = 0, last = '', writer = writer })
  grow('#bytes', ${STREAM_BYTES})
  if endless == '0' then grow('#running', 1) end
end

local function add(stream, writer, seq, value, reopened)
  local s = find(stream)
  local list = index .. ':' .. stream
  -- All events of a stream expire before it ends, or are removed for others.
  if not s and reopened ~= '' then
    redis.call('DEL', list)
    open(stream, writer, reopened)
    s = find(stream)
  end
  if isRefused(s, stream, writer) or seq <= s.added then return end
  -- The events of an endless stream expire together.
  if s.count > 0 and redis.call('EXISTS', list) == 0 then shrink(s, s.count, s.bytes) end
  redis.call('RPUSH', list, text(seq) .. ':' .. value)
  s.added = seq
  shrink(s, -1, -(#value + ${EVENT_BYTES}))
  save(stream, s)
  redis.call('PEXPIRE', list, (s.endless == '1' or s.last ~= '') and ${KEEP_MS} or ${UNFINISHED_MS})
end

local function finish(stream, writer, last)
  local s = find(stream)
  if isRefused(s, stream, writer) or s.last ~= '' then return end
  if s.endless == '0' then grow('#running', -1) end
  s.last = last
  save(stream, s)
  redis.call('ZADD', index .. '#ended', now, stream)
  redis.call('PEXPIRE', index .. ':' .. stream, ${KEEP_MS})
end

local i = 7
while ARGV[i] do
  local kind, stream, writer = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  i = i + 3
  if kind == 'open' then
    open(stream, writer, ARGV[i])
    i = i + 1
  elseif kind == 'add' then
    add(stream, writer, tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2])
    i = i + 3
  elseif kind == 'finish' then
    finish(stream, writer, ARGV[i])
    i = i + 1
  elseif not isRefused(find(stream), stream, writer) then
    remove(stream)
  end
end

for _, stream in ipairs(redis.call('ZRANGEBYSCORE', index .. '#ended', '-inf', now - ${KEEP_MS})) do remove(stream) end

local function isOver() return total('#events') > mostEvents or total('#bytes') > mostBytes end

-- Removes the oldest events of the streams that have not ended, from the oldest stream on.
local function trimRunning()
  local running = {}
  local fields = redis.call('HGETALL', index)
  for n = 1, #fields, 2 do
    local s = find(fields[n])
    if s and s.count > 0 then running[#running + 1] = { stream = fields[n], s = s } end
  end
  table.sort(running, function(a, b) return a.s.opened < b.s.opened end)
  for _, each in ipairs(running) do
    local list = index .. ':' .. each.stream
    while each.s.count > 0 and isOver() do
      local value = redis.call('LPOP', list)
      if value then shrink(each.s, 1, #value - #string.match(value, '^%d+:') + ${EVENT_BYTES})
      else shrink(each.s, each.s.count, each.s.bytes) end
    end
    save(each.stream, each.s)
  end
end

while isOver() do
  local oldest = redis.call('ZRANGE', index .. '#ended', 0, 0)[1]
  if oldest then remove(oldest) else trimRunning(); break end
end

local untilMs = math.min(expires, now + (total('#running') > 0 and ${UNFINISHED_MS} or ${KEEP_MS}))
if total('#bytes') <= 0 then
  redis.call('DEL', index, index .. '#ended')
  forget(serial)
else
  redis.call('PEXPIREAT', index, text(untilMs))
  redis.call('PEXPIREAT', index .. '#ended', text(untilMs))
  redis.call('HINCRBY', sizes, 'total', text(total('#bytes') - tonumber(redis.call('HGET', sizes, serial) or 0)))
  redis.call('HSET', sizes, serial, text(total('#bytes')))
  redis.call('ZADD', ends, untilMs, serial)
end
expire(now)
local dropped = 0
while own() > mostOwn do
  local least = redis.call('ZRANGE', ends, 0, 0)[1]
  if not least then break end
  drop(least)
  dropped = dropped + 1
end
local latest = tonumber(redis.call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2] or now)
redis.call('PEXPIREAT', sizes, text(latest))
redis.call('PEXPIREAT', ends, text(latest))
local names = {}
for stream in pairs(refused) do names[#names + 1] = stream end
return { names, dropped, own(), latest }`);

/** Returns the description and the events of a stream. The keys: index of the session, events of the stream. The argument: its name. */
export const READ_EVENTS: Script = scriptOf(`
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then return {} end
return { known, redis.call('LRANGE', KEYS[2], 0, -1) }`);

/**
 * Changes the writer of a stream, and returns it as {@link READ_EVENTS} does. The keys: index of the session, events of the stream, placement of the session.
 * The arguments: name of the stream, placement of this process, new writer. Returns nothing if this process does not own the session.
 */
export const TAKE_EVENTS: Script = scriptOf(`
if redis.call('GET', KEYS[3]) ~= ARGV[2] then return {} end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then return {} end
known = string.match(known, '^%d:%d+:%d+:%d+:%d+:%d*:') .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], known)
return { known, redis.call('LRANGE', KEYS[2], 0, -1) }`);

/**
 * Removes the events of sessions of a principal, least recently written first, until so many bytes are free. The keys: its sizes and ends. Returns the
 * bytes that are left and their end (ms).
 */
export const SHED_EVENTS: Script = scriptOf(`
local sizes, ends = KEYS[1], KEYS[2]
${NOW_LUA}${SESSIONS}
expire(now)
local wanted = own() - tonumber(ARGV[1])
while own() > wanted do
  local least = redis.call('ZRANGE', ends, 0, 0)[1]
  if not least then break end
  drop(least)
end
return { own(), tonumber(redis.call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')[2] or now) }`);

/**
 * Sets the bytes of a principal among those of all. The keys: bytes by principal, ends (ms) by principal, sum. The arguments: the principal, its bytes,
 * their end, the greatest sum. Returns the principal with the most bytes and the bytes beyond the sum, if there are any.
 */
export const ACCOUNT_EVENTS: Script = scriptOf(`
local bytes, ends, sum = KEYS[1], KEYS[2], KEYS[3]
${NOW_LUA}
local function set(principal, size)
  redis.call('INCRBY', sum, string.format('%.0f', size - tonumber(redis.call('ZSCORE', bytes, principal) or 0)))
  if size > 0 then redis.call('ZADD', bytes, size, principal) else redis.call('ZREM', bytes, principal) end
end
for _, principal in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)) do
  set(principal, 0)
  redis.call('ZREM', ends, principal)
end
set(ARGV[1], tonumber(ARGV[2]))
if tonumber(ARGV[2]) > 0 then redis.call('ZADD', ends, ARGV[3], ARGV[1]) else redis.call('ZREM', ends, ARGV[1]) end
for _, entry in ipairs(KEYS) do redis.call('PEXPIRE', entry, ${2 * UNFINISHED_MS}) end
local over = tonumber(redis.call('GET', sum)) - tonumber(ARGV[4])
if over <= 0 then return {} end
return { redis.call('ZREVRANGE', bytes, 0, 0)[1] or '', over }`);

/** Lua that removes the events of the session `serial`, whose principal has the sizes `eventSizes` and `eventEnds`. */
export const DROP_EVENTS_LUA = `
do
  local sizes, ends = eventSizes, eventEnds
  ${SESSIONS}
  drop(text(serial))
end`;
