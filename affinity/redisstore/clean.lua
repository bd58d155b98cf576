-- Removes entries from a life's index in one partition whose pins do not name the
-- life. They were found out by a read before, so each is looked at again.
--
-- KEYS  the index, the partition's zset of lives, the pins of the rooms
-- ARGV  the life, the rooms

local index, lives, life = KEYS[1], KEYS[2], ARGV[1]
for i = 2, #ARGV do
  local stands = redis.pcall('GET', KEYS[i + 1])
  local names = type(stands) == 'string' and string.match(stands, '^([^|]+|%d+)|%d+|%d+$')
  if names ~= life then
    redis.call('ZREM', index, ARGV[i])
  end
end
if redis.call('EXISTS', index) == 0 then
  redis.call('ZREM', lives, life)
end
return 1
