-- Tells where nodes stand.
--
-- KEYS  the model's turns, then of each node its load, leases, what they have queued, and idle slots
-- ARGV  clock, retention, then the nodes
-- Returns {DONE, now, then of each node: leases, idle slots, queued, current weight, failures, 1 if the circuit is tried}.

local reply, current = {DONE, now}, {}
local names = {''}
for i = 3, #ARGV do names[#names + 1] = ARGV[i] end
for from = 1, #names, 1000 do
  local some = call('HMGET', KEYS[1], unpack(names, from, math.min(from + 999, #names)))
  for i = 1, #some do current[from + i - 1] = some[i] end
end
local known = current[1] and now < current[1] + 0
for i = 1, #ARGV - 2 do
  local k = 4 * i - 2
  local s, r = state_of(KEYS[k], KEYS[k + 1], KEYS[k + 2]), #reply
  if s then
    reply[r + 1], reply[r + 2], reply[r + 3] = s[N] + 0, call('ZCOUNT', KEYS[k + 3], '(' .. millis_word, '+inf'), s[Q] + 0
    reply[r + 4], reply[r + 5] = known and tonumber(current[i + 1] or 0) or 0, s[FAILURES] + 0
    reply[r + 6] = s[PROBE] ~= '' and 1 or 0
  else
    for n = 1, 6 do reply[r + n] = 0 end
  end
end
return reply
