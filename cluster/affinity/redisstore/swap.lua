-- Compare-and-sets of the pins of some rooms; see pinstore.Op. In Redis Cluster they are of
-- one partition.
--
-- KEYS     for each op:
--          the room's pin, the index of If if there is one, and if there is a Set its index
--          and the zset of incarnations of the partition
-- ARGV     for each op:
--          room, If incarnation, If epoch, Set incarnation, Set epoch, size, TTL in ms, needs
-- returns  for each op: outcome, the pin afterwards ('' for none), its TTL in ms
--          outcome 0: If did not match, 1: done, 2: the value is no pin, and is returned
--          in its place
--
-- The script reads new pins once more at the end: a connection that tracks what its scripts
-- read is notified of changes of keys that it has read since their last change. It reads no
-- other key, or indexes would be tracked, too.

local FIELDS = 8
local MAX_EPOCH = 2 ^ 53 - 1 -- numbers are doubles
local STEPS = 8 -- of a TTL, by which the end of an index moves
local micros, now -- the time, once an op writes
local out, answers = {}, 0
local longest = {} -- TTL set so far, by index
local texts = {} -- of times: to write one takes longer than to look it up

local function answer(outcome, pin, ttl)
  out[answers + 1], out[answers + 2], out[answers + 3] = outcome, pin, ttl
  answers = answers + 3
end

-- Only for times: a table with some other Lua fills up to a key that is small.
local function text(time)
  local t = texts[time]
  if not t then
    t = string.format('%.0f', time)
    texts[time] = t
  end
  return t
end

-- Prolongs an index, and reports whether it did. For GT a key without a TTL, such as a new
-- one, lasts forever.
local function last(key, ttl)
  return redis.call('PEXPIRE', key, ttl, 'GT') == 1 or redis.call('PEXPIRE', key, ttl, 'NX') == 1
end

-- Enters a room into the index of an incarnation, and the incarnation into incs, the index of
-- the partition. An index lasts at least as long as its longest entry. Its end moves in
-- steps: an index that lasts until the present step has been entered into the index of the
-- partition, too, which lasts as long. Apart.lua, and other releases, end an index at no
-- step.
local function enter(index, incs, inc, room, ttl)
  redis.call('ZADD', index, text(now + ttl), room)
  if ttl <= (longest[index] or 0) then
    return
  end
  longest[index] = ttl
  local step = math.ceil(ttl / STEPS)
  local till = (math.floor((now + ttl) / step) + 1) * step
  local rest = string.format('%.0f', till - now)
  if last(index, rest) then
    redis.call('ZADD', incs, 'GT', text(till), inc)
    last(incs, rest)
    -- Not entries that expire now: a key expires a millisecond after its TTL.
    redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. text(now))
    redis.call('ZREMRANGEBYSCORE', incs, '-inf', '(' .. text(now))
  end
end

local n = #ARGV / FIELDS
local pins, written, k = {}, {}, 1
local at = {} -- in KEYS, of each op
for i = 1, n do
  local field = (i - 1) * FIELDS
  pins[i], at[i] = KEYS[k], k
  k = k + 1 + (ARGV[field + 2] ~= '' and 1 or 0) + (ARGV[field + 4] ~= '' and 2 or 0)
end
local found = {} -- by key, false for none
for i, value in ipairs(redis.call('MGET', unpack(pins))) do
  found[pins[i]] = value
end

for i = 1, n do
  local room, ifInc, ifEpoch, setInc, setEpoch, size, ttl, needs = unpack(ARGV, (i - 1) * FIELDS + 1, i * FIELDS)
  local pin, ifIndex = pins[i], KEYS[at[i] + 1]
  local set = at[i] + (ifInc == '' and 1 or 2)
  local setIndex, incs = KEYS[set], KEYS[set + 1]

  local stands = found[pin]
  local inc, epoch = '', nil
  if stands then
    inc, epoch = string.match(stands, '^([^|]+|%d+)|(%d+)|%d+|')
  end

  if not inc or (epoch and tonumber(epoch) >= MAX_EPOCH) then
    answer(2, stands, 0)

  elseif inc ~= ifInc or (ifEpoch ~= '0' and epoch ~= ifEpoch) then
    if ifInc ~= '' and inc ~= ifInc then
      redis.call('ZREM', ifIndex, room)
    end
    if stands then
      answer(0, stands, redis.call('PTTL', pin))
    else
      answer(0, '', 0)
    end

  elseif setInc == '' then
    if stands then
      redis.call('DEL', pin)
      redis.call('ZREM', ifIndex, room)
      found[pin] = false
    end
    answer(1, '', 0)

  else
    if not micros then
      local time = redis.call('TIME')
      micros = time[1] * 1000000 + time[2]
      now = math.floor(micros / 1000)
    end
    if inc ~= setInc or tonumber(setEpoch) > tonumber(epoch) then
      epoch = text(math.max(ifEpoch + 1, setEpoch + 1, (epoch or 0) + 1, micros))
    end
    local value = setInc .. '|' .. epoch .. '|' .. size .. '|' .. needs
    -- The index comes first: an entry without a pin is harmless, a pin without an
    -- entry would be lost when its node dies.
    enter(setIndex, incs, setInc, room, tonumber(ttl))
    -- A key that MGET does not show is no string, and so no pin.
    if redis.call('SET', pin, value, 'PX', ttl, stands and 'XX' or 'NX') then
      if stands and inc ~= setInc then
        redis.call('ZREM', ifIndex, room)
      end
      found[pin] = value
      written[#written + 1] = pin
      answer(1, value, tonumber(ttl))
    else
      redis.call('ZREM', setIndex, room)
      answer(2, 'another type', 0)
    end
  end
end
if #written > 0 then
  redis.call('MGET', unpack(written))
end
return out
