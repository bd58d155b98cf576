-- Records or removes the settings that all users of a cluster must share.
--
-- KEYS[1]  string: "since" and a time, then a line for each setting: its name, its expiry, the
--          incarnation that recorded it, its value
-- KEYS[2]  zset: incarnation that has recorded these settings -> expiry
-- KEYS[3]  zset: incarnation that was recently refused because its settings differ -> expiry
-- ARGV     incarnation, TTL in ms (0: remove), the time since which the caller has agreed with others
--          (0: not yet), 1 if a refusal must not be added to KEYS[3], names and values
-- returns  the time since which users have had these settings, and the incarnations in KEYS[3]; or '',
--          and for each setting that differs: its name, its value, and the incarnation

local key, users, refused, self, ttl, since = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local FIRST = 5 -- of the names
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if ttl == 0 then
  redis.call('ZREM', refused, self)
  redis.call('ZREM', users, self)
  redis.call('ZREMRANGEBYSCORE', users, '-inf', now)
  if redis.call('ZCARD', users) == 0 then
    redis.call('DEL', key)
  end
  return {'0'}
end

local function enter(zset)
  redis.call('ZADD', zset, now + ttl, self)
  if redis.call('PEXPIRE', zset, ttl, 'GT') == 0 then
    redis.call('PEXPIRE', zset, ttl, 'NX')
  end
end

local first, is, order = now, {}, {}
local text = redis.call('GET', key)
if text then
  local head, rest = string.match(text, '^since (%d+)\n(.*)$')
  if not head then
    return redis.error_reply('ERR the value has no settings')
  end
  for name, expiry, by, value in string.gmatch(rest, '(%S+) (%d+) (%S+) ([^\n]*)\n') do
    if tonumber(expiry) > now then
      is[name] = {expiry = tonumber(expiry), by = by, value = value}
      order[#order + 1] = name
      first = tonumber(head)
    end
  end
end

local differ = {''}
for i = FIRST, #ARGV, 2 do
  local other = is[ARGV[i]]
  if other and other.value ~= ARGV[i + 1] then
    differ[#differ + 1], differ[#differ + 2], differ[#differ + 3] = ARGV[i], other.value, other.by
  end
end
local earlier = since > 0 and since < first
if #differ > 1 and not earlier then
  redis.call('ZREM', users, self)
  if ARGV[4] == '0' then
    redis.call('ZREMRANGEBYSCORE', refused, '-inf', now)
    enter(refused)
  end
  return differ
elseif #differ > 1 then
  is, order = {}, {}
end

local stale = earlier
if earlier then
  first = since
end
for i = FIRST, #ARGV, 2 do
  local name = ARGV[i]
  if not is[name] then
    order[#order + 1] = name
  end
  if not is[name] or is[name].expiry < now + ttl * 3 / 4 then -- otherwise each user would write each time
    is[name] = {expiry = now + ttl, by = self, value = ARGV[i + 1]}
    stale = true
  end
end

local answer = string.format('%.0f', first)
if stale then
  local lines, last = {'since ' .. answer}, 0
  for i, name in ipairs(order) do
    local s = is[name]
    lines[i + 1] = string.format('%s %.0f %s %s', name, s.expiry, s.by, s.value)
    last = math.max(last, s.expiry)
  end
  redis.call('SET', key, table.concat(lines, '\n') .. '\n', 'PX', string.format('%.0f', last - now))
  redis.call('ZREMRANGEBYSCORE', users, '-inf', now)
end
enter(users)
local out = {answer}
for _, other in ipairs(redis.call('ZRANGEBYSCORE', refused, string.format('(%.0f', now), '+inf')) do
  if other == self then
    redis.call('ZREM', refused, self)
  else
    out[#out + 1] = other
  end
end
return out
