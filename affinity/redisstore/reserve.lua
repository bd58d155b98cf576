-- Counts units of new rooms towards a node, unless too many were counted of late.
--
-- KEYS[1]  the node's zset: a quarter of a second → units that were counted in it
-- KEYS[2]  the units that were counted for the room of late: claims of one room at the same time do not fill the node
-- ARGV     units, limit, how far back units count in ms, the quarter to take units from ('' for a count)
-- returns  the units that count, without the new ones; the quarter, '' if the new ones
--          exceed the limit

local QUARTER, KEPT, LATE = 250, 120000, 1000
local key, units, limit, window, from = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if from ~= '' then
  if redis.call('ZSCORE', key, from) then
    redis.call('ZADD', key, 'INCR', -units, from)
  end
  if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('DECRBY', KEYS[2], units)
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
local quarter = ''
if sum - (redis.call('GET', KEYS[2]) or 0) + units <= limit then
  quarter = string.format('%.0f', math.floor(now / QUARTER))
  redis.call('ZADD', key, 'INCR', units, quarter)
  redis.call('PEXPIRE', key, KEPT)
  redis.call('INCRBY', KEYS[2], units)
  redis.call('PEXPIRE', KEYS[2], LATE)
end
return {string.format('%.0f', math.min(sum, 2 ^ 53)), quarter}
