-- A part of an op of swap.lua that needs one key, while the slot moves to another server of
-- a Redis Cluster: then some keys of a partition are on one server, some on the other.
--
-- KEYS[1]  an index, or the pin
-- ARGV     'enter', member, TTL in ms
--          or 'swap' and the ARGV of one op of swap.lua
-- returns  for 'swap': as swap.lua

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local key = KEYS[1]

if ARGV[1] == 'enter' then
  local ttl = tonumber(ARGV[3])
  redis.call('ZADD', key, 'GT', math.floor(micros / 1000) + ttl, ARGV[2])
  if redis.call('PEXPIRE', key, ttl, 'GT') == 0 then
    redis.call('PEXPIRE', key, ttl, 'NX')
  end
  return {}
end

local MAX_EPOCH = 2 ^ 53 - 1 -- numbers are doubles
local _, _, ifInc, ifEpoch, setInc, setEpoch, size, ttl, needs = unpack(ARGV)
local stands = redis.call('GET', key)
local inc, epoch = '', nil
if stands then
  inc, epoch = string.match(stands, '^([^|]+|%d+)|(%d+)|%d+|')
end
if not inc or (epoch and tonumber(epoch) >= MAX_EPOCH) then
  return {2, stands, 0}
end
if inc ~= ifInc or (ifEpoch ~= '0' and epoch ~= ifEpoch) then
  return {0, stands or '', stands and redis.call('PTTL', key) or 0}
end
if setInc == '' then
  if stands then
    redis.call('DEL', key)
  end
  return {1, '', 0}
end
if inc ~= setInc or tonumber(setEpoch) > tonumber(epoch) then
  epoch = string.format('%.0f', math.max(ifEpoch + 1, setEpoch + 1, (epoch or 0) + 1, micros))
end
local value = setInc .. '|' .. epoch .. '|' .. size .. '|' .. needs
redis.call('SET', key, value, 'PX', ttl)
redis.call('GET', key) -- so that the connection is notified of changes
return {1, value, tonumber(ttl)}
