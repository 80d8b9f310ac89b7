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
