-- Every script begins with this file: the clock, and how counters are kept. Numbers are whole and below 2^53, where
-- float64 is exact. The sums of rates are those of package gcra.
--
-- ARGV[1] is the time in microseconds since 1970, which only tests set; empty means Redis' own.

local call = redis.call

local now = tonumber(ARGV[1])
-- What keys outlive their use by, in milliseconds. On a test's clock they have to last while the test does.
local spare = 3600000
if not now then
  local time = call('TIME')
  now, spare = time[1] * 1000000 + time[2], 1
end

-- The first number of every reply.
local REFUSED, DONE, ELSEWHEN = 0, 1, 2

local MAX_BACKLOG = 2 ^ 52

-- A rate is a string: when, and what was still to drain then.

-- backlog_of is what is still to drain of a rate now. A clock that went back drains nothing.
local function backlog_of(key, limit)
  local level = call('GET', key)
  if not level then return 0 end
  local at, backlog = string.match(level, '^(%d+) (%d+)$')
  -- Where the product is too large to be exact it is larger than any backlog.
  return math.max(backlog - math.max(now - at, 0) * limit, 0)
end

local function keep_backlog(key, limit, backlog)
  if backlog == 0 then
    call('DEL', key)
    return
  end
  local drains = math.ceil(backlog / limit / 1000)
  call('SET', key, string.format('%.0f %.0f', now, backlog), 'PX', drains + spare)
end

-- A window is a hash of what is settled (s) and reserved (r), and a sorted set of leases: "amount:id" by the instant at
-- which each is over.

-- sums_of is what is settled and reserved of a window, and whether there is anything of it yet.
local function sums_of(sums)
  local both = call('HMGET', sums, 's', 'r')
  return tonumber(both[1] or 0), tonumber(both[2] or 0), both[1] or both[2]
end

-- lapsed is how much of what is reserved is so no more: what leases hold that are over. Without any lease it is
-- everything.
local function lapsed(leases, reserved)
  if reserved == 0 then return 0 end
  local first = call('ZRANGE', leases, 0, 0, 'WITHSCORES')
  if not first[1] then return reserved end
  if tonumber(first[2]) > now then return 0 end
  local over = 0
  for _, lease in ipairs(call('ZRANGEBYSCORE', leases, '-inf', now)) do
    over = over + string.match(lease, '^%d+')
  end
  return math.min(over, reserved)
end

-- expire_window gives a key of a window its life, until an instant in microseconds. It is said by how long that is,
-- because a test's clock is not Redis'.
local function expire_window(key, forgotten)
  call('PEXPIRE', key, math.ceil((forgotten - now) / 1000) + spare)
end
