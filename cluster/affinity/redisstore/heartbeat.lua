-- Records or removes a heartbeat, and returns which other nodes are alive.
--
-- KEYS[1]  zset: incarnation -> expiry of its heartbeat
-- ARGV     incarnation ("" for none), TTL in ms (0: remove), incarnations to look up
-- returns  1 if the server has a heartbeat of the incarnation that has not expired, else 0; then the same for each
--          incarnation to look up

local heartbeats, self, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local known = redis.call('ZSCORE', heartbeats, self)
local out = {known and tonumber(known) >= now and 1 or 0}

if self ~= '' and ttl > 0 then
  redis.call('ZADD', heartbeats, now + ttl, self)
  if redis.call('PEXPIRE', heartbeats, ttl, 'GT') == 0 then
    redis.call('PEXPIRE', heartbeats, ttl, 'NX')
  end
else
  redis.call('ZREM', heartbeats, self)
end
redis.call('ZREMRANGEBYSCORE', heartbeats, '-inf', '(' .. now) -- a key, too, expires a millisecond after its TTL
for i = 3, #ARGV do
  out[#out + 1] = redis.call('ZSCORE', heartbeats, ARGV[i]) and 1 or 0
end
return out
