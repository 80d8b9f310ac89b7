-- Takes back the slot of a choice whose answer nobody has.
--
-- KEYS  of each contender its load, leases, and what they have queued
-- ARGV  clock, retention, id
-- Returns {DONE, now, 1 if a slot was taken, else 0}.

local id, taken = ARGV[3], 0
for k = 1, #KEYS, 3 do
  local load, inflight, lease = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local s = state_of(load, inflight, lease)
  if s and call('ZREM', inflight, id) == 1 then
    local queued = call('HGET', lease, id) or 0
    call('HDEL', lease, id)
    call('HSET', load, 'n', word(math.max(s[N] - 1, 0)), 'q', word(math.max(s[Q] - queued, 0)))
    if s[N] <= 1 then call('HSET', load, 'x', '') end
    local _, probe = circuit_of(load)
    if probe == id then call('HSET', load, 'probe', '') end
    taken = 1
  end
end
return {DONE, now, taken}
