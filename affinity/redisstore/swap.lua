-- Compare-and-sets of the pins of some rooms of one partition; see affinity.Op.
--
-- KEYS[1]  the partition's zset of lives (any key if no op has a Set life)
--          and for each op:
--          the room's pin, the index of the If life, the index of the Set life
--          (any key in place of one that the op does not have)
-- ARGV     for each op:
--          room, If life, If epoch, Set life, Set epoch, size, TTL in ms
-- returns  for each op: outcome, pin that stands ('' for none), its TTL in ms
--          outcome 0: If did not stand, 1: done, 2: the pin is garbage, which comes
--          in its place
--
-- Pins that were set are read once more at the end: a connection with tracking is told
-- of changes of keys that it has read since their last change. Nothing else is read, or
-- indexes would be tracked, too. Before Redis 7.2 each command that reads tracks all
-- keys of the script, which is why one command reads all pins.

local FIELDS = 7
local MAX_EPOCH = 2 ^ 53 - 1 -- numbers are doubles
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local lives = KEYS[1]
local out = {}
local longest = {} -- TTL that was seen to, by index

local function answer(outcome, pin, ttl)
  out[#out + 1] = outcome
  out[#out + 1] = pin
  out[#out + 1] = ttl
end

-- An index lasts as long as the longest of its entries. GT takes a key without a
-- TTL, as a new one is, for one that lasts forever.
local function last(key, ttl)
  if redis.call('PEXPIRE', key, ttl, 'GT') == 0 then
    redis.call('PEXPIRE', key, ttl, 'NX')
  end
end

-- Enters a room into the index of a life, and the life into that of the partition.
-- What goes for all rooms of a batch is done for the first of them.
local function enter(index, life, room, ttl)
  redis.call('ZADD', index, now + ttl, room)
  if ttl > (longest[index] or 0) then
    longest[index] = ttl
    redis.call('ZADD', lives, 'GT', now + ttl, life)
    last(index, ttl)
    last(lives, ttl)
    -- Not what expires now: a key goes a millisecond after its TTL.
    redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. now)
    redis.call('ZREMRANGEBYSCORE', lives, '-inf', '(' .. now)
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
  local room, ifLife, ifEpoch, setLife, setEpoch, size, ttl = unpack(ARGV, (i - 1) * FIELDS + 1, i * FIELDS)

  local stands = found[pin]
  local life, epoch = '', nil
  if stands then
    life, epoch = string.match(stands, '^([^|]+|%d+)|(%d+)|%d+$')
  end

  if not life or (epoch and tonumber(epoch) >= MAX_EPOCH) then
    answer(2, stands, 0)

  elseif life ~= ifLife or (ifEpoch ~= '0' and epoch ~= ifEpoch) then
    if ifLife ~= '' and life ~= ifLife then
      redis.call('ZREM', ifIndex, room)
    end
    if stands then
      answer(0, stands, redis.call('PTTL', pin))
    else
      answer(0, '', 0)
    end

  elseif setLife == '' then
    if stands then
      redis.call('DEL', pin)
      redis.call('ZREM', ifIndex, room)
      found[pin] = false
    end
    answer(1, '', 0)

  else
    if life ~= setLife then
      epoch = string.format('%.0f', math.max(ifEpoch + 1, setEpoch + 1, (epoch or 0) + 1, micros))
    end
    local value = setLife .. '|' .. epoch .. '|' .. size
    -- The index comes first: an entry without a pin is harmless, a pin without an
    -- entry would be lost when its node dies.
    enter(setIndex, setLife, room, tonumber(ttl))
    -- What MGET does not show and yet is there is no string, and nobody's pin.
    if redis.call('SET', pin, value, 'PX', ttl, stands and 'XX' or 'NX') then
      if stands and life ~= setLife then
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
