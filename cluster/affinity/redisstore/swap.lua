-- Performs compare-and-set ops on the pins of some rooms; see pinstore.Op. In a Redis Cluster, all rooms must be in
-- one partition.
--
-- KEYS     for each op:
--          the room's pin, the index of If if it names an incarnation, and if Set names one its index and the list
--          of incarnations; or the pin of a single op, for a slot that moves (see apart.go)
-- ARGV     a channel and the sender for it, and for each op:
--          room, partition, If incarnation, If epoch, Set incarnation, Set epoch, TTL in ms, size|needs
-- returns  for each op: outcome, the pin afterward ('' for none), its TTL in ms
--          outcome 0: If did not match, 1: done, 2: the value is not a pin, and is returned in place of the pin,
--          3: an error, which is returned in place of the pin
--
-- The script publishes the rooms whose pins it has replaced or deleted, in one message. The first line is the sender,
-- and each further line is a room. The script does not publish the first pin of a room, because no client caches the
-- answer that a room has no pin.

local FIELDS, FIRST = 8, 3
local MAX_EPOCH = 2 ^ 53 - 1 -- numbers are doubles
local STEPS = 8 -- of a TTL, by which the end of an index moves
local apart = #KEYS == 1
local micros, now -- the time, once an op writes
local out, answers = {}, 0
local changed = {}
local wrote = false
local longest = {} -- TTL set so far, by index

local function answer(outcome, pin, ttl)
  out[answers + 1], out[answers + 2], out[answers + 3] = outcome, pin, ttl
  answers = answers + 3
end

-- Lua would write a large number with an exponent.
local function text(number) return string.format('%.0f', number) end

-- Ensures that a key lasts at least for a TTL.
local function last(key, ttl, rest)
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, rest)
    return true
  end
end

-- Adds a room to the index of an incarnation, and the incarnation to the list. An index lasts at least as
-- long as its longest entry. Its expiry moves in steps, so that most new entries do not change it.
local function enter(index, list, inc, room, partition, ttl)
  local first = partition * 2 ^ 32
  redis.call('ZADD', index, text(first + math.ceil((now + ttl) / 1000)), room)
  if micros % STEPS == 0 then -- now and then, remove what has expired
    redis.call('ZREMRANGEBYSCORE', index, text(first), '(' .. text(first + math.floor(now / 1000)))
  end
  if ttl <= (longest[index] or 0) then
    return
  end
  longest[index] = ttl
  local rest = ttl + math.ceil(ttl / STEPS)
  if last(index, ttl, rest) then
    redis.call('ZADD', list, 'GT', text(now + rest), inc)
    last(list, rest, rest)
    redis.call('ZREMRANGEBYSCORE', list, '-inf', '(' .. text(now))
  end
end

local k = 1 -- in KEYS
for i = FIRST, #ARGV, FIELDS do
  local room, partition, ifInc, ifEpoch, setInc, setEpoch, ttl, rest = unpack(ARGV, i, i + FIELDS - 1)
  local pin, ifIndex, setIndex, list = KEYS[k], nil, nil, nil
  k = k + 1
  if not apart and ifInc ~= '' then
    ifIndex, k = KEYS[k], k + 1
  end
  if not apart and setInc ~= '' then
    setIndex, list, k = KEYS[k], KEYS[k + 1], k + 2
  end

  local stands = redis.pcall('GET', pin)
  local inc, epoch = '', nil
  if type(stands) == 'table' then
    stands, inc = 'another type', nil
  elseif stands then
    inc, epoch = string.match(stands, '^([^|]+|%d+)|(%d+)|%d+|')
  end

  if not inc or (epoch and tonumber(epoch) >= MAX_EPOCH) then
    answer(2, stands, 0)

  elseif inc ~= ifInc or (ifEpoch ~= '0' and epoch ~= ifEpoch) then
    if ifIndex and inc ~= ifInc then
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
      wrote = true
      if ifIndex then
        redis.call('ZREM', ifIndex, room)
      end
      changed[#changed + 1] = room
    end
    answer(1, '', 0)

  else
    if not micros then
      local time = redis.call('TIME')
      micros = time[1] * 1000000 + time[2]
      now = math.floor(micros / 1000)
    end
    local was = epoch
    if inc ~= setInc or tonumber(setEpoch) > tonumber(epoch) then
      epoch = text(math.max(ifEpoch + 1, setEpoch + 1, (epoch or 0) + 1, micros))
    end
    local value = setInc .. '|' .. epoch .. '|' .. rest
    -- Write the index first, because an entry without a pin is harmless. If a pin had no entry and its node
    -- died, no other node would find the room.
    local entered, problem = true, nil
    if setIndex then
      entered, problem = pcall(enter, setIndex, list, setInc, room, tonumber(partition), tonumber(ttl))
      problem = type(problem) == 'table' and problem.err or problem
    end
    if not entered and not wrote then
      return redis.error_reply(problem)
    elseif not entered then -- the ops before stay, and are published
      answer(3, problem, 0)
    else
      redis.call('SET', pin, value, 'PX', ttl)
      wrote = true
      answer(1, value, tonumber(ttl))
    end
    if entered and stands and epoch ~= was then
      changed[#changed + 1] = room
      if ifIndex and inc ~= setInc then
        redis.call('ZREM', ifIndex, room)
      end
    end
  end
end
if #changed > 0 then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. '\n' .. table.concat(changed, '\n'))
end
return out
