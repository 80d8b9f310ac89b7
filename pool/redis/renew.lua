-- Lets leases live on that are not over.
--
-- KEYS  of each lease its window's sums and leases
-- ARGV  clock, how long leases live, then the leases
-- Returns {DONE, now}.

local ends = now + ARGV[2]
local ends_word = word(ends)
for i = 1, #KEYS / 2 do
  local sums, leases, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[i + 2]
  local over = call('ZSCORE', leases, lease)
  if over and tonumber(over) > now then
    call('ZADD', leases, ends_word, lease)
    local soonest = call('HGET', sums, 'x')
    if soonest and ends < tonumber(soonest) then call('HSET', sums, 'x', ends_word) end
  end
end
return {DONE, now}
