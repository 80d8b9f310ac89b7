-- Takes back what a lease has queued: the node has read the prompt.
--
-- KEYS  the node's load, leases, what they have queued
-- ARGV  clock, retention, id
-- Returns {DONE, now}.

local load, lease, id = KEYS[1], KEYS[3], ARGV[3]
local s = state_of(load, KEYS[2], lease)
if not s then return {DONE, now} end
local queued = call('HGET', lease, id)
if queued and queued ~= '0' then
  call('HSET', lease, id, '0')
  call('HSET', load, 'q', word(math.max(s[Q] - queued, 0)))
end
return {DONE, now}
