-- Returns the participants of a room. It only reads: it omits stale participants and does
-- not remove them.
--
-- KEYS[1]  the room's zset: participant → last heartbeat in ms
-- ARGV[1]  stale in ms
-- returns  participant, ms since the heartbeat, participant, …

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local cut = string.format('(%.0f', now - ARGV[1])
local out = redis.call('ZRANGEBYSCORE', KEYS[1], cut, '+inf', 'WITHSCORES')
for i = 2, #out, 2 do
  -- A server that took over may be behind the one that wrote this.
  out[i] = math.max(0, now - out[i])
end
return out
