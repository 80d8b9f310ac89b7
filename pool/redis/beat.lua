-- Takes a heartbeat in.
--
-- KEYS  as in registry.lua, then the counter of generations
-- ARGV  clock, retention, node, report, level, warm
-- Returns {REFUSED, now} where the node is not registered, else {DONE, now, leases, idle slots, queued, failures, 1 if the
-- circuit is tried, then the fields of what the fleet shows, in the order in which the fleet is read}.

local node, report, level, warm = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local known = known_of('level', 'warm', 'generation')
if not known then return {REFUSED, now} end
local s = state_of_registered()

-- Each name in a list has a space after it, and none in it.
local generation, is = known[4], ' ' .. warm
for was in string.gmatch(known[3], '[^ ]+') do
  if not string.find(is, ' ' .. was .. ' ', 1, true) then
    generation = node .. '/' .. word(now) .. '/' .. word(call('INCR', KEYS[9]))
    break
  end
end
if known[2] ~= level then call('DEL', slots) end
local at = word(now)
call('HSET', load, 'at', at)
call('HSET', fleet, 'report', report, 'level', level, 'warm', warm, 'at', at, 'counted', word(s[N]), 'opened', s[OPENED],
  'generation', generation, 'speeds', speeds_now())
call('ZADD', nodes, at, node)
prolong()

local idle = call('ZCOUNT', slots, '(' .. millis_word, '+inf')
local _, probe, failures = circuit_of(load)
local reply = {DONE, now, s[N] + 0, idle, s[Q] + 0, failures + 0, probe ~= '' and 1 or 0}
local shown = call('HMGET', fleet, unpack(ARGV, 7))
for i = 1, #shown do reply[#reply + 1] = shown[i] or '' end
return reply
