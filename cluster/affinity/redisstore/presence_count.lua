-- Returns the number of participants of a room without stale participants.
--
-- KEYS[1]  the room's zset: participant → last heartbeat in ms
-- ARGV[1]  stale in ms

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now - ARGV[1]), '+inf')
