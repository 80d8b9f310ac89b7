-- Tells where counters stand and books nothing.
--
-- KEYS  as in admit.lua
-- ARGV  clock, then of each charge
--         'r', limit, full
--         'w', start, end
-- Returns {DONE, now, then of each charge: backlog, or settled and reserved}, {ELSEWHEN, now} when now is not in one of
-- the windows, or {AGAIN, now} when too many leases are over.

local reply, again, ended = {DONE, now}, false, {}
local k, a = 1, 2
while k <= #KEYS do
  if ARGV[a] == 'r' then
    reply[#reply + 1] = backlog_of(KEYS[k], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]))
    k, a = k + 1, a + 3
  else
    if now < tonumber(ARGV[a + 1]) or now >= tonumber(ARGV[a + 2]) then return {ELSEWHEN, now} end
    local settled, reserved, soonest = sums_of(KEYS[k])
    if reserved > 0 then
      local live, over, more = live_of(KEYS[k + 1], reserved, soonest)
      if over > 0 then ended[#ended + 1] = {KEYS[k], KEYS[k + 1], live, over} end
      reserved, again = live, again or more
    end
    reply[#reply + 1] = settled
    reply[#reply + 1] = reserved
    k, a = k + 2, a + 3
  end
end
if again then
  -- Only where there are too many, so that reading works while Redis takes no writes: all of these are done with.
  for _, window in ipairs(ended) do reap(unpack(window)) end
  return {AGAIN, now}
end
return reply
