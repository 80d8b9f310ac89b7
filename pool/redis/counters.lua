-- Scripts about counters go on with this file: how they are kept. The sums of rates are those of package gcra.

local MAX_BACKLOG, MAX_AMOUNT = 2 ^ 52, 2 ^ 53

-- How many leases that are over this script may still look at: nobody else is served meanwhile, and there are many when a
-- replica has died.
local may_reap = 500

-- A rate is a string: when, what was still to drain then, and the limit by which it drains.

local function level_of(key)
  local level = call('GET', key)
  if not level then return 0, 0, 0 end
  local at, backlog, limit = string.match(level, '^(%d+) (%d+) (%d+)$')
  return tonumber(at), tonumber(backlog), tonumber(limit)
end

-- left_of is what is still to drain of a level now. A clock that went back drains nothing. Where the product is too large
-- to be exact it is larger than any backlog.
local function left_of(at, backlog, limit)
  return math.max(backlog - math.max(now - at, 0) * limit, 0)
end

-- backlog_of is what is still to drain of a rate now, and whether the level that is kept is stale. Under another limit
-- than before it is at most what goes at once.
local function backlog_of(key, limit, full)
  local at, backlog, kept = level_of(key)
  local left = left_of(at, backlog, limit)
  if left == 0 then return 0, false end
  if kept ~= limit then return math.min(left, full), true end
  return left, at > now
end

local function keep_backlog(key, limit, backlog)
  if backlog == 0 then
    call('DEL', key)
    return
  end
  local drains = math.ceil(backlog / limit / 1000)
  call('SET', key, now_word .. ' ' .. word(backlog) .. ' ' .. word(limit), 'PX', word(drains + spare))
end

-- A window is a sorted set of leases, "amount:id" by the instant at which each is over, and a hash of what is settled
-- (s), what is reserved (r), and an instant before which no lease is over (x). Only from then on leases are looked at.

-- sums_of is what is settled and reserved of a window, its x, and whether there is anything of it yet.
local function sums_of(sums)
  local all = call('HMGET', sums, 's', 'r', 'x')
  return tonumber(all[1] or 0), tonumber(all[2] or 0), tonumber(all[3] or 0), all[1] or all[2]
end

-- live_of is what is reserved by leases that are not over, how many are over, and whether there may be more of these than
-- were looked at. Without any lease nothing is reserved: Redis may have evicted them.
local function live_of(leases, reserved, soonest)
  local all = call('ZCARD', leases)
  if all == 0 then return 0, 0, false end
  if soonest > now then return reserved, 0, false end
  local ended = call('ZRANGEBYSCORE', leases, '-inf', now_word, 'LIMIT', '0', word(may_reap))
  local more, over = #ended == may_reap and #ended < all, 0
  may_reap = may_reap - #ended
  if #ended == all then return 0, all, false end
  for _, lease in ipairs(ended) do over = over + string.match(lease, '^%d+') end
  return reserved - math.min(over, reserved), #ended, more
end

-- reap forgets the leases that are over, and returns the x of the others.
local function reap(sums, leases, live, over)
  call('ZREMRANGEBYRANK', leases, '0', word(over - 1))
  local soonest = call('ZRANGE', leases, '0', '0', 'WITHSCORES')[2] or 0
  call('HSET', sums, 'r', word(live), 'x', word(soonest))
  return tonumber(soonest)
end

-- expire_window gives a key of a window its life, until an instant in microseconds. It is said by how long that is,
-- because a test's clock is not Redis'.
local function expire_window(key, forgotten)
  call('PEXPIRE', key, word(math.ceil((forgotten - now) / 1000) + spare))
end
