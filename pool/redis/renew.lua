-- Lets leases live on that are not over.
--
-- KEYS  the leases of a window, once for each lease
-- ARGV  clock, how long leases live, then the leases
-- Returns {DONE, now}.

local ends = now + ARGV[2]
for i, leases in ipairs(KEYS) do
  local lease = ARGV[i + 2]
  local over = call('ZSCORE', leases, lease)
  if over and tonumber(over) > now then call('ZADD', leases, ends, lease) end
end
return {DONE, now}
