-- Replaces a node's token where it is still the former one.
--
-- KEYS  as in registry.lua
-- ARGV  clock, retention, former, token
-- Returns {DONE, now}, or {REFUSED, now} where it is not.

local known = known_of('token')
if not known or known[2] ~= ARGV[3] then return {REFUSED, now} end
call('HSET', fleet, 'token', ARGV[4])
return {DONE, now}
