-- Replaces what was booked by what it came to, or books what was never reserved (a debit). Once for each id.
--
-- KEYS  the memory of the id, then as in admit.lua
-- ARGV  clock, how long windows are kept past their end, id, how long the id is remembered, then of each charge
--         'r', limit, change, drained                     change of the backlog; drained: when nothing of the booking
--                                                         is left to give back
--         'w', start or -1, end, booked, came             start: now has to be in the window
-- Returns {DONE, now}, also for an id that was there before, or {ELSEWHEN, now} when now is not in one of the windows.

local kept, id, memory = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local books = {}

local function rate(key, limit, change, drained)
  local at, backlog, kept = level_of(key)
  local left = left_of(at, backlog, kept)
  change = math.max(change, math.min(now - drained, 0) * limit)
  if left == 0 then kept = limit end -- otherwise the limit that is kept is newer than the booking, or the same
  keep_backlog(key, kept, math.min(math.max(left + change, 0), MAX_BACKLOG))
end

local function window(sums, leases, forgotten, booked, came)
  -- A key that is made when its window is forgotten would have no life.
  if now >= forgotten then return end
  local held = 0
  if booked ~= '0' and call('ZREM', leases, booked .. ':' .. id) == 1 then held = tonumber(booked) end
  if came + held == 0 then return end
  local settled, reserved, _, found = sums_of(sums)
  if not found then call('DEL', leases) end -- they were of sums that Redis has evicted
  call('HSET', sums, 's', word(math.min(settled + came, MAX_AMOUNT)), 'r', word(math.max(reserved - held, 0)))
  if not found then expire_window(sums, forgotten) end
end

local k, a = 2, 5
while k <= #KEYS do
  local key, b = KEYS[k], a
  if ARGV[a] == 'r' then
    books[#books + 1] = function() rate(key, tonumber(ARGV[b + 1]), tonumber(ARGV[b + 2]), tonumber(ARGV[b + 3])) end
    k, a = k + 1, a + 4
  else
    local starts, over, leases = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), KEYS[k + 1]
    if starts >= 0 and (now < starts or now >= over) then return {ELSEWHEN, now} end
    books[#books + 1] = function() window(key, leases, over + kept, ARGV[b + 3], tonumber(ARGV[b + 4])) end
    k, a = k + 2, a + 5
  end
end

local remembered, life = word(now + memory), word(math.ceil(memory / 1000) + spare)
if not call('SET', KEYS[1], remembered, 'NX', 'PX', life) then
  if tonumber(call('GET', KEYS[1]) or 0) > now then return {DONE, now} end
  call('SET', KEYS[1], remembered, 'PX', life) -- its time was over by a test's clock
end
for _, book in ipairs(books) do book() end
return {DONE, now}
