-- Scripts that change the registry go on with this file. KEYS begins with the nodes by their last heartbeat, those that
-- were removed by when, and of the node what the fleet shows, its load, leases, what they have queued, idle slots, speeds.
--
-- What the fleet shows is a hash: spec and report in JSON, token, key, endpoint, level, warm (the models in memory), at,
-- registered, counted, drained ('1'), opened, generation, and speeds in JSON.

local nodes, removed = KEYS[1], KEYS[2]
local fleet, load, inflight, lease, slots, speeds = KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- known_of returns fields of what the fleet shows, or nil where the node is not registered, or was not heard of for too long.
local function known_of(...)
  local known = call('HMGET', fleet, 'at', ...)
  if known[1] and known[1] + retention > now then return known end
end

-- set_back lets slots end by so many microseconds sooner, by which the clock was set back: who renews no more, whose slot
-- would be taken for so much longer.
local function set_back(by)
  by = math.floor(by / 1000)
  for _, key in ipairs({inflight, slots}) do
    local from, flat = 0
    repeat
      flat = call('ZRANGE', key, word(from), word(from + AT_ONCE - 1), 'WITHSCORES')
      for i = 1, #flat, 2 do call('ZADD', key, word(flat[i + 1] - by), flat[i]) end
      from = from + AT_ONCE
    until #flat < 2 * AT_ONCE
  end
end

-- state_of_registered is the node's state. Where Redis has evicted it, it begins anew, with the leases that there are.
local function state_of_registered()
  local s = state_of(load, inflight, lease)
  if s then
    if s[AT] + 0 > now then
      set_back(s[AT] - now)
      heal(s, load, inflight, lease)
    end
    return s
  end
  s = {}
  adopt(s, load)
  s[N], s[X], s[Q], s[OPENED] = 0, '', queued_of(inflight, lease), ''
  heal(s, load, inflight, lease)
  return s
end

-- forget drops all that belongs to the node.
local function forget() call('DEL', fleet, load, inflight, lease, slots, speeds) end

-- speeds_now are those measured so far.
local function speeds_now()
  local all, flat = {}, call('HGETALL', speeds)
  if #flat == 0 then return '' end
  for i = 1, #flat, 2 do
    local ttft, tps = string.match(flat[i + 1], '^(%S+) (%S+)$')
    all[flat[i]] = {ttft, tps}
  end
  return cjson.encode(all)
end

-- prolong gives every key of the node its life.
local function prolong()
  local lives = life()
  for k = 1, #KEYS do call('PEXPIRE', KEYS[k], lives) end
end
