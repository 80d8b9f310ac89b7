-- Books every charge or none.
--
-- KEYS  of a rate its level; of a window its sums and its leases
-- ARGV  clock, how long windows are kept past their end, id, how long leases live, then of each charge
--         'r', limit, full, room, cost                    room: the largest backlog at which it fits
--         'w', start, end, ceiling, amount                ceiling: the largest use
-- Returns {DONE or REFUSED, now, then of each charge what was there before: backlog, or settled and reserved},
-- {ELSEWHEN, now} when now is not in one of the windows, or {AGAIN, now} when too many leases are over.

local kept, id, ends = tonumber(ARGV[2]), ARGV[3], now + ARGV[4]
local ends_word -- only leases need it
local reply, books, again = {DONE, now}, {}, false

local function rate(key, limit, full, room, cost)
  local backlog, stale = backlog_of(key, limit, full)
  if stale then keep_backlog(key, limit, backlog) end
  reply[#reply + 1] = backlog
  if backlog > room then reply[1] = REFUSED end
  if cost > 0 then
    books[#books + 1] = function() keep_backlog(key, limit, backlog + cost) end
  end
end

local function window(sums, leases, forgotten, ceiling, booked)
  local amount = tonumber(booked)
  local settled, reserved, soonest, found = sums_of(sums)
  if reserved > 0 then
    local live, over, more = live_of(leases, reserved, soonest)
    if over > 0 then soonest = reap(sums, leases, live, over) end
    reserved, again = live, again or more
  end
  reply[#reply + 1] = settled
  reply[#reply + 1] = reserved
  local at = #reply
  if math.max(amount, 1) > ceiling - settled - reserved then reply[1] = REFUSED end
  if amount > 0 then
    ends_word = ends_word or word(ends)
    books[#books + 1] = function()
      if not found then call('DEL', leases) end -- they were of sums that Redis has evicted
      local sooner = reserved == 0 or ends < soonest
      if call('ZADD', leases, ends_word, booked .. ':' .. id) == 0 then
        -- Admitted once more, it has one lease, so that it reserves once.
        if sooner then call('HSET', sums, 'x', ends_word) end
        reply[at] = reserved - amount
        return
      end
      if sooner then
        call('HSET', sums, 'r', word(reserved + amount), 'x', ends_word)
      else
        call('HSET', sums, 'r', word(reserved + amount))
      end
      -- A window's life is set once, that of the leases each time that there was none.
      if not found then expire_window(sums, forgotten) end
      if reserved == 0 then expire_window(leases, forgotten) end
    end
  end
end

local k, a = 1, 5
while k <= #KEYS do
  if ARGV[a] == 'r' then
    rate(KEYS[k], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]))
    k, a = k + 1, a + 5
  else
    local starts, over = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    if now < starts or now >= over then return {ELSEWHEN, now} end
    window(KEYS[k], KEYS[k + 1], over + kept, tonumber(ARGV[a + 3]), ARGV[a + 4])
    k, a = k + 2, a + 5
  end
end
if again then return {AGAIN, now} end
if reply[1] == DONE then
  for _, book in ipairs(books) do book() end
end
return reply
