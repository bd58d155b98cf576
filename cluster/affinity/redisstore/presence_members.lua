-- Returns a page of the participants of a room, starting with the oldest heartbeats or
-- after an earlier page. The script only reads. It omits stale participants and does not
-- remove them.
--
-- KEYS[1]  the room's zset: participant → last heartbeat in ms
-- ARGV[1]  stale in ms
-- ARGV[2]  participants per page; participants with the same millisecond are always on the same page
-- ARGV[3]  the last heartbeat of the previous page in ms, or 0 for the first page
-- returns  the last heartbeat of this page in ms, or 0 if no page follows;
--          participant, ms since the heartbeat, participant, …

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local page = tonumber(ARGV[2])
local after = string.format('(%.0f', math.max(now - ARGV[1], ARGV[3]))
local out = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'WITHSCORES', 'LIMIT', 0, page)
local last = '0'
if #out == 2 * page then
  last = out[#out]
  while out[#out] == last do
    out[#out], out[#out - 1] = nil, nil
  end
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], last, last, 'WITHSCORES')) do
    out[#out + 1] = field
  end
end
for i = 2, #out, 2 do
  -- The clock of a server that took over may be behind the clock of the server that wrote the heartbeat.
  out[i] = math.max(0, now - out[i])
end
table.insert(out, 1, last)
return out
