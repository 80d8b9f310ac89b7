-- Takes a node out for an administrator, or puts it back.
--
-- KEYS  as in registry.lua
-- ARGV  clock, retention, '1' or ''
-- Returns {DONE, now}, or {REFUSED, now} where there is no such node.

if not known_of() then return {REFUSED, now} end
call('HSET', fleet, 'drained', ARGV[3])
return {DONE, now}
