-- Counts the units of new rooms for a node, unless the sum would exceed a limit.
--
-- KEYS[1]  the node's zset: a quarter of a second → units that were counted in it
-- KEYS[2]  the units that were recently counted for the room, so that concurrent claims of one room do not use up the
--          node's headroom several times
-- ARGV     units, limit, how far back units count in ms, the quarter from which to subtract units ('' to count)
-- returns  the units of other rooms that count; the quarter, or '' if the new units would
--          exceed the limit

local QUARTER, KEPT, LATE = 250, 120000, 5000
local key, units, limit, window, from = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local same = redis.call('GET', KEYS[2])
local function text(n) return string.format('%.0f', n) end
if from ~= '' then
  if redis.call('ZSCORE', key, from) then
    redis.call('ZADD', key, 'INCR', -units, from)
  end
  if same then
    redis.call('SET', KEYS[2], text(same - units), 'KEEPTTL')
  end
  return {'0', from}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local first, oldest = math.floor((now - window) / QUARTER), math.floor((now - KEPT) / QUARTER)
local sum = 0
local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local at = tonumber(all[i])
  if at >= first then
    sum = sum + tonumber(all[i + 1])
  elseif at < oldest then
    redis.call('ZREM', key, all[i])
  end
end
sum = sum - (same or 0)
local quarter = ''
if sum + units <= limit then
  quarter = text(math.floor(now / QUARTER))
  redis.call('ZADD', key, 'INCR', units, quarter)
  redis.call('PEXPIRE', key, KEPT)
  if same then
    redis.call('SET', KEYS[2], text(same + units), 'KEEPTTL')
  else
    redis.call('SET', KEYS[2], text(units), 'PX', math.max(1, math.min(LATE, window)))
  end
end
return {text(math.min(math.max(0, sum), 2 ^ 53)), quarter}
