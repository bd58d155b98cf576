-- Removes the stale entries from the index of an incarnation in one partition. The script checks each entry again,
-- because the pin of the room may have changed after the caller read it.
--
-- KEYS  the index, the partition's zset of incarnations, the pins of the rooms
-- ARGV  the incarnation, the rooms

local index, incs, inc = KEYS[1], KEYS[2], ARGV[1]
for i = 2, #ARGV do
  local stands = redis.pcall('GET', KEYS[i + 1])
  local names = type(stands) == 'string' and string.match(stands, '^([^|]+|%d+)|%d+|%d+|')
  if names ~= inc then
    redis.call('ZREM', index, ARGV[i])
  end
end
if redis.call('EXISTS', index) == 0 then
  redis.call('ZREM', incs, inc)
end
return 1
