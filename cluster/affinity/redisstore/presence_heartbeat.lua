-- Adds or renews participants of a room, and removes stale ones.
--
-- KEYS[1]  the room's zset: participant → last heartbeat in ms
-- ARGV     stale in ms, participants
--
-- The key lasts as long as its latest heartbeat counts, so that an abandoned room expires.
-- The removal comes first: a server at its memory limit lets a script continue that has
-- already written. Rejected heartbeats would make all rooms look empty.

local key, stale = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', key, '-inf', now - stale)
local heartbeats = {}
for i = 2, #ARGV do
  heartbeats[#heartbeats + 1] = now
  heartbeats[#heartbeats + 1] = ARGV[i]
end
redis.call('ZADD', key, unpack(heartbeats))
redis.call('PEXPIRE', key, stale)
return 1
