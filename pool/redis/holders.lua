-- Tells which generations hold the deepest prefix that any of them holds.
--
-- KEYS  the prefixes, deepest first
-- ARGV  clock, retention, then the generations
-- Returns {DONE, now, then of each generation 1 if it does, else 0}.

local reply, places = {DONE, now}, {}
for i = 3, #ARGV do
  reply[i] = 0
  places[ARGV[i]] = true
end
local held = call('MGET', unpack(KEYS))
for p = 1, #held do
  local holds, any = {}, false
  if held[p] then
    for ends, generation in string.gmatch(held[p], '(%d+) ([^ ]*) ') do
      if places[generation] and now < ends + 0 then holds[generation], any = true, true end
    end
  end
  if any then
    for i = 3, #ARGV do
      if holds[ARGV[i]] then reply[i] = 1 end
    end
    return reply
  end
end
return reply
