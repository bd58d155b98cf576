-- Notes that a life is alive, or says farewell, and tells which others are.
--
-- KEYS[1]  the zset of the lives that signed
-- ARGV     life ("" for none), TTL in ms (0: farewell), lives to ask for
-- returns  for each life asked for: 1 if it has signed and not run out, else 0

local signed, self, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

if self ~= '' and ttl > 0 then
  redis.call('ZADD', signed, now + ttl, self)
  if redis.call('PEXPIRE', signed, ttl, 'GT') == 0 then
    redis.call('PEXPIRE', signed, ttl, 'NX')
  end
else
  redis.call('ZREM', signed, self)
end
redis.call('ZREMRANGEBYSCORE', signed, '-inf', '(' .. now) -- a key, too, goes a millisecond after its TTL

local out = {}
for i = 3, #ARGV do
  out[#out + 1] = redis.call('ZSCORE', signed, ARGV[i]) and 1 or 0
end
return out
