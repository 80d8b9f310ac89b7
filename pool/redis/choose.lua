-- Chooses a node and takes a slot of it, by the sums of package selection: float64, in its order of operations.
--
-- KEYS  the model's turns, the prefixes, deepest first, then of each contender its load, leases by their ends, what they
--       have queued, and where it is paced the slots held idle
-- ARGV  clock, retention, id, how long the lease lives, tokens of the prompt, '1' for plain weights, affinity, cooldown of
--       circuits, how long prefixes and turns are remembered, how many generations of a prefix and nodes of a model's turns
--       are, how many prefixes there are, then the tokens of each, then of each contender
--         name, generation, static weight, rank, slots in all, slots to use, foreign load, seconds for each token or 0,
--         'p' if paced, 'k' if it counts as registered even when it is not
-- Returns {DONE, now, which contender or 0, slots that were taken, matched, queued, ahead, turn, 1 for a trial}.

local id, prompt, plain, affinity = ARGV[3], tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local cooldown, prefixes = tonumber(ARGV[8]), tonumber(ARGV[13])
local WORDS, first = 9, 14 + prefixes
local count = (#ARGV - first + 1) / WORDS
local find, max, min, sqrt, floor, tonumber = string.find, math.max, math.min, math.sqrt, math.floor, tonumber

-- Who has a free slot, and of which rank the best of them are. What is known of each contender is kept by its place: its
-- state, where its keys begin, how many of its slots are taken, whether a lease would be a trial, and its weight.
local states, places, taking, trials, weights = {}, {}, {}, {}, {}
local occupied, rank = 0, nil
local k = 2 + prefixes
for i = 1, count do
  local a = first + (i - 1) * WORDS
  local flags = ARGV[a + 8]
  local s = state_of(KEYS[k], KEYS[k + 1], KEYS[k + 2], flags ~= '' and find(flags, 'k', 1, true) and '1')
  local taken, admitted = tonumber(ARGV[a + 6]), false
  if s then
    places[i] = k
    taken = taken + s[N]
    admitted = s[OPENED] == ''
    if not admitted then
      admitted = cooled(s[OPENED], cooldown) and call('HGET', KEYS[k], 'probe') == ''
      trials[i] = admitted
    end
  end
  if flags ~= '' and find(flags, 'p', 1, true) then
    if s then taken = taken + call('ZCOUNT', KEYS[k + 3], '(' .. millis_word, '+inf') end
    k = k + 4
  else
    k = k + 3
  end
  occupied = occupied + taken
  if admitted and taken < tonumber(ARGV[a + 5]) then
    states[i], taking[i] = s, taken
    local r = tonumber(ARGV[a + 3])
    if not rank or r < rank then rank = r end
  end
end
if not rank then return {DONE, now, 0, occupied, 0, 0, 0, 0, 0} end

-- The others of that rank weigh in.
local eligible, wanted, missing = {}, {}, 0
for i = 1, count do
  local a = first + (i - 1) * WORDS
  if states[i] and tonumber(ARGV[a + 3]) == rank then
    eligible[#eligible + 1] = i
    local generation = ARGV[a + 1]
    if not wanted[generation] then
      wanted[generation], missing = true, missing + 1
    end
  end
end

-- A prefix is a text of entries "end generation ", of which the end has sixteen digits; those that end last come last. Many
-- prefixes have the same text as the one before, since they were recorded together. The shortest entry has a generation of
-- one letter.
local matched, held, SHORTEST = {}, nil, 19
if prefixes > 0 then
  held = call('MGET', unpack(KEYS, 2, 1 + prefixes))
  for p = 1, prefixes do
    if missing == 0 then break end
    if held[p] and held[p] ~= held[p - 1] then
      for ends, generation in string.gmatch(held[p], '(%d+) ([^ ]*) ') do
        if wanted[generation] and now < ends + 0 then
          wanted[generation], missing = nil, missing - 1
          matched[generation] = min(tonumber(ARGV[13 + p]), prompt)
        end
      end
    end
  end
end

local size, best = max(prompt, 0), 0
for e = 1, #eligible do
  local i = eligible[e]
  local a = first + (i - 1) * WORDS
  local all, free = tonumber(ARGV[a + 4]), 0
  if taking[i] < all then
    free = 1 - taking[i] / all
    free = free * free
  end
  local w = ARGV[a + 2] * free
  if not plain then
    local pace, held = tonumber(ARGV[a + 7]), min(max(matched[ARGV[a + 1]] or 0, 0), size)
    if pace > 0 then
      local x = 0.1 / (0.1 + pace * (max(states[i][Q], 0) + size - held))
      w = w * (x * sqrt(x))
    end
    if held > 0 and affinity > 0 then
      w = w * (1 + min(affinity, 16) * (held / size) * min(1, held / 1000))
    end
  end
  w = w * 100000000
  if not (w >= 1) then
    w = 1
  elseif w >= 68000000000000 then
    w = 68000000000000
  else
    w = floor(w)
  end
  weights[i] = w
  if w > best then best = w end
end

-- The turn is nginx's smooth weighted round robin over those that are worth almost as much as the best.
local turns, takes_part = {}, {}
for e = 1, #eligible do
  if plain or weights[eligible[e]] * 10 >= best * 9 then turns[#turns + 1] = eligible[e] end
end
local current, known = currents_of(KEYS[1])
local winner, total = nil, 0
for t = 1, #turns do
  local w, name = weights[turns[t]], ARGV[first + (turns[t] - 1) * WORDS]
  local c = min(max(tonumber(current[name] or 0), -4503599627370496), 4503599627370496) + w
  current[name], takes_part[name] = c, true
  total = total + w
  if not winner or c > current[ARGV[first + (winner - 1) * WORDS]] then winner = turns[t] end
end
local name = ARGV[first + (winner - 1) * WORDS]
current[name] = current[name] - total
local order = {}
for i = 1, #known do
  if not takes_part[known[i]] then order[#order + 1] = known[i] end
end
for t = 1, #turns do order[#order + 1] = ARGV[first + (turns[t] - 1) * WORDS] end
keep_currents(KEYS[1], current, order, tonumber(ARGV[10]), tonumber(ARGV[12]))

local chosen = winner
local a, s = first + (chosen - 1) * WORDS, states[chosen]
k = places[chosen]
local generation, ahead = ARGV[a + 1], s[Q]
local have = matched[generation] or 0
if not s[AT] then adopt(s, KEYS[k]) end
if trials[chosen] then
  enlist(s, KEYS[k], KEYS[k + 1], KEYS[k + 2], id, after(ARGV[4]), prompt - have, 'probe', id)
else
  enlist(s, KEYS[k], KEYS[k + 1], KEYS[k + 2], id, after(ARGV[4]), prompt - have)
end

if prefixes > 0 then
  local remembered, most = tonumber(ARGV[9]), tonumber(ARGV[11])
  local entry = string.format('%016.0f', now + remembered) .. ' ' .. generation .. ' '
  local kept, own, length = word(math.ceil(remembered / 1000) + spare), ' ' .. generation .. ' ', #generation + 18
  local former, latter
  for p = 1, prefixes do
    local text = held[p] or ''
    if text ~= former then
      former = text
      local at = find(text, own, 17, true)
      if at then text = string.sub(text, 1, at - 17) .. string.sub(text, at - 16 + length) end
      while text ~= '' and string.sub(text, 1, 16) + 0 <= now do
        text = string.sub(text, find(text, ' ', 18, true) + 1)
      end
      latter = text .. entry
      if #latter > most * SHORTEST then
        local _, words = string.gsub(latter, ' ', ' ')
        for _ = most + 1, words / 2 do latter = string.sub(latter, find(latter, ' ', 18, true) + 1) end
      end
    end
    call('SET', KEYS[1 + p], latter, 'PX', kept)
  end
end
return {DONE, now, chosen, occupied, have, prompt - have, ahead, call('HGET', KEYS[k], 'turn') + 0, trials[chosen] and 1 or 0}
