-- Compare-and-sets of the pins of some rooms of one partition; see affinity.Op.
--
-- KEYS[1]  the partition's zset of incarnations (any key if no op has a Set)
--          and for each op:
--          the room's pin, the index of If, the index of Set
--          (any key in place of an absent one)
-- ARGV     for each op:
--          room, If incarnation, If epoch, Set incarnation, Set epoch, size, TTL in ms
-- returns  for each op: outcome, the pin afterwards ('' for none), its TTL in ms
--          outcome 0: If did not match, 1: done, 2: the value is no pin, and is returned
--          in its place
--
-- The script reads new pins once more at the end: a tracking connection is notified of
-- changes of keys that it has read since their last change. It reads no other key, or
-- indexes would be tracked, too. Before Redis 7.2 each reading command tracks all keys of
-- the script, so one command reads all pins.

local FIELDS = 7
local MAX_EPOCH = 2 ^ 53 - 1 -- numbers are doubles
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local incs = KEYS[1]
local out = {}
local longest = {} -- TTL set so far, by index

local function answer(outcome, pin, ttl)
  out[#out + 1] = outcome
  out[#out + 1] = pin
  out[#out + 1] = ttl
end

-- An index lasts as long as its longest entry. For GT a key without a TTL, such as a new
-- one, lasts forever.
local function last(key, ttl)
  if redis.call('PEXPIRE', key, ttl, 'GT') == 0 then
    redis.call('PEXPIRE', key, ttl, 'NX')
  end
end

-- Enters a room into the index of an incarnation, and the incarnation into the index of
-- the partition. The first room of a batch does the work for all.
local function enter(index, inc, room, ttl)
  redis.call('ZADD', index, now + ttl, room)
  if ttl > (longest[index] or 0) then
    longest[index] = ttl
    redis.call('ZADD', incs, 'GT', now + ttl, inc)
    last(index, ttl)
    last(incs, ttl)
    -- Not entries that expire now: a key expires a millisecond after its TTL.
    redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. now)
    redis.call('ZREMRANGEBYSCORE', incs, '-inf', '(' .. now)
  end
end

local n = #ARGV / FIELDS
local pins, set = {}, {}
for i = 1, n do
  pins[i] = KEYS[i * 3 - 1]
end
local found = {} -- by key, false for none
for i, value in ipairs(redis.call('MGET', unpack(pins))) do
  found[pins[i]] = value
end

for i = 1, n do
  local pin, ifIndex, setIndex = pins[i], KEYS[i * 3], KEYS[i * 3 + 1]
  local room, ifInc, ifEpoch, setInc, setEpoch, size, ttl = unpack(ARGV, (i - 1) * FIELDS + 1, i * FIELDS)

  local stands = found[pin]
  local inc, epoch = '', nil
  if stands then
    inc, epoch = string.match(stands, '^([^|]+|%d+)|(%d+)|%d+$')
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
    if inc ~= setInc then
      epoch = string.format('%.0f', math.max(ifEpoch + 1, setEpoch + 1, (epoch or 0) + 1, micros))
    end
    local value = setInc .. '|' .. epoch .. '|' .. size
    -- The index comes first: an entry without a pin is harmless, a pin without an
    -- entry would be lost when its node dies.
    enter(setIndex, setInc, room, tonumber(ttl))
    -- A key that MGET does not show is no string, and so no pin.
    if redis.call('SET', pin, value, 'PX', ttl, stands and 'XX' or 'NX') then
      if stands and inc ~= setInc then
        redis.call('ZREM', ifIndex, room)
      end
      found[pin] = value
      set[#set + 1] = pin
      answer(1, value, tonumber(ttl))
    else
      redis.call('ZREM', setIndex, room)
      answer(2, 'another type', 0)
    end
  end
end
if #set > 0 then
  redis.call('MGET', unpack(set))
end
return out
