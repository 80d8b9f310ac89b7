-- Tells where nodes stand.
--
-- KEYS  the model's turns, then of each node its load, leases, what they have queued, and idle slots
-- ARGV  clock, retention, then the nodes' names
-- Returns {DONE, now, then of each node: leases, idle slots, queued, current weight, failures, 1 if the circuit is tried}.

local reply, current = {DONE, now}, currents_of(KEYS[1])
for i = 1, #ARGV - 2 do
  local k = 4 * i - 2
  local s, r = state_of(KEYS[k], KEYS[k + 1], KEYS[k + 2]), #reply
  if s then
    local _, probe, failures = circuit_of(KEYS[k])
    reply[r + 1], reply[r + 2], reply[r + 3] = s[N] + 0, call('ZCOUNT', KEYS[k + 3], '(' .. millis_word, '+inf'), s[Q] + 0
    reply[r + 4], reply[r + 5] = tonumber(current[ARGV[i + 2]] or 0), failures + 0
    reply[r + 6] = probe ~= '' and 1 or 0
  else
    for n = 1, 6 do reply[r + n] = 0 end
  end
end
return reply
