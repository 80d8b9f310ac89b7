-- Tells where counters stand and changes nothing.
--
-- KEYS  as in admit.lua
-- ARGV  clock, then of each charge
--         'r', limit, full
--         'w', start, end
-- Returns {DONE, now, then of each charge: backlog, or settled and reserved}, or {ELSEWHEN, now} when now is not in one
-- of the windows.

local reply = {DONE, now}
local k, a = 1, 2
while k <= #KEYS do
  if ARGV[a] == 'r' then
    reply[#reply + 1] = backlog_of(KEYS[k], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]))
    k, a = k + 1, a + 3
  else
    if now < tonumber(ARGV[a + 1]) or now >= tonumber(ARGV[a + 2]) then return {ELSEWHEN, now} end
    local settled, reserved, soonest = sums_of(KEYS[k])
    if reserved > 0 and soonest <= now then reserved = reserved - lapsed(KEYS[k + 1], reserved) end
    reply[#reply + 1] = settled
    reply[#reply + 1] = reserved
    k, a = k + 2, a + 3
  end
end
return reply
