-- Adds or renews participants of a room, and removes stale participants.
--
-- KEYS[1]  the room's zset: participant → last heartbeat in ms
-- ARGV     stale in ms, participants
--
-- The key expires when its latest heartbeat becomes stale, so an abandoned room disappears. The script removes stale
-- participants first, because a server at its memory limit allows a script to continue after its first write. If the
-- server rejected heartbeats, all rooms would appear empty.

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
