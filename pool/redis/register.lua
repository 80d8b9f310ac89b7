-- Takes a node in, or replaces what is known of it.
--
-- KEYS  as in registry.lua, then the counter of generations
-- ARGV  clock, retention, node, spec, token, key, endpoint, report, level, warm, how long removals are remembered
-- Returns {DONE, now}.

local node, endpoint, level = ARGV[3], ARGV[7], ARGV[9]
local former = known_of('endpoint', 'level')
-- Without it there may be leases even so, of a node that counted as registered after Redis had lost it.
if not former and not state_of(load, inflight, lease) then forget() end
local s = state_of_registered()
if former and former[2] ~= endpoint then
  -- What was learned of the endpoint that the node had says nothing about this one.
  s[OPENED] = ''
  call('HSET', load, 'failures', '0', 'opened', '', 'turn', word(circuit_of(load) + 1), 'probe', '')
  call('DEL', speeds)
end
if former and former[3] ~= level then call('DEL', slots) end

local at = word(now)
local generation = node .. '/' .. at .. '/' .. word(call('INCR', KEYS[9]))
call('HSET', load, 'at', at)
call('HSET', fleet, 'spec', ARGV[4], 'token', ARGV[5], 'key', ARGV[6], 'endpoint', endpoint, 'report', ARGV[8],
  'level', level, 'warm', ARGV[10], 'at', at, 'registered', at, 'counted', word(s[N]), 'opened', s[OPENED],
  'generation', generation, 'speeds', speeds_now())
call('HSETNX', fleet, 'drained', '')
call('ZADD', nodes, at, node)
call('ZREMRANGEBYSCORE', nodes, '-inf', word(now - retention))
call('ZREM', removed, node)
call('ZREMRANGEBYSCORE', removed, '-inf', word(now - ARGV[11]))
prolong()
return {DONE, now}
