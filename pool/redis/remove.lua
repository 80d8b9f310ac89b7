-- Forgets a node with all that belongs to it.
--
-- KEYS  as in registry.lua
-- ARGV  clock, retention, node, the key that it has to have registered with or '', 'k' if it counts as registered even when
--       it is not, how long removals are remembered
-- Returns {DONE, now}, or {REFUSED, now} where there is no such node.

local node, key = ARGV[3], ARGV[4]
local known = known_of('key')
if known and key ~= '' and known[2] ~= key or not known and ARGV[5] ~= 'k' then return {REFUSED, now} end
forget()
call('ZREM', nodes, node)
call('ZADD', removed, word(now), node)
call('PEXPIRE', removed, word(math.ceil(ARGV[6] / 1000) + spare))
return {DONE, now}
