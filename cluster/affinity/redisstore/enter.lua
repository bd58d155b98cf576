-- Adds a room to the index of an incarnation, or an incarnation to the list of incarnations, while their slot moves
-- to another server of a Redis Cluster. At all other times, swap.lua does both.
--
-- KEYS[1]  the index, or the list
-- ARGV     room, partition, TTL in ms; or incarnation, '', TTL in ms

local key, member, partition, ttl = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if partition == '' then
  redis.call('ZADD', key, 'GT', string.format('%.0f', now + ttl), member)
else
  redis.call('ZADD', key, string.format('%.0f', partition * 2 ^ 32 + math.ceil((now + ttl) / 1000)), member)
end
if redis.call('PEXPIRE', key, ttl, 'GT') == 0 then
  redis.call('PEXPIRE', key, ttl, 'NX')
end
return 1
