-- Gives a slot back, once for each lease, and learns from the call.
--
-- KEYS  the memory of the release, the node's load, leases, what they have queued, idle slots, speeds, and what the fleet
--       shows of it
-- ARGV  clock, retention, id, how long a release is remembered, outcome, turn, '1' for a trial, how long the slot stays
--       idle or '', how many failures open the circuit, model, measured time to the first token, tokens per second, each ''
--       if it teaches nothing, and how much of a measurement goes into an average
-- Returns {DONE, now, 1 if what the fleet shows has changed, else 0}.

local id, memory, outcome, idle = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[8]
local UNJUDGED, SUCCEEDED = '0', '1'
local remembered, lives = word(now + memory), word(math.ceil(memory / 1000) + spare)
if not call('SET', KEYS[1], remembered, 'NX', 'PX', lives) then
  if now < tonumber(call('GET', KEYS[1]) or 0) then return {DONE, now, 0} end
  call('SET', KEYS[1], remembered, 'PX', lives) -- its time was over by a test's clock
end
local load, inflight, lease, slots, speeds = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local s = state_of(load, inflight, lease)
if not s then return {DONE, now, 0} end
local turn, probe, failures = circuit_of(load)

local fields, changed = {}, 0
local function set(field, value)
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end

-- show tells the fleet when the circuit opened. A node may hold leases that Redis has lost.
local function show(opened)
  if call('EXISTS', KEYS[7]) == 1 then
    call('HSET', KEYS[7], 'opened', opened)
    changed = 1
  end
end

if call('ZREM', inflight, id) == 1 then
  local queued = call('HGET', lease, id) or 0
  call('HDEL', lease, id)
  set('n', word(math.max(s[N] - 1, 0)))
  if s[N] <= 1 then set('x', '') end
  set('q', word(math.max(s[Q] - queued, 0)))
  if idle ~= '' then
    call('ZREMRANGEBYSCORE', slots, '-inf', millis_word)
    call('ZADD', slots, word(after(idle)), id)
    call('PEXPIRE', slots, life())
  end
end
if probe == id then set('probe', '') end
if ARGV[6] == turn and outcome ~= UNJUDGED then
  if outcome == SUCCEEDED then
    if failures ~= '0' then set('failures', '0') end
    if s[OPENED] ~= '' then
      set('opened', '')
      set('turn', word(turn + 1))
      show('')
    end
  else
    failures = failures + 1
    set('failures', word(failures))
    if failures >= tonumber(ARGV[9]) or ARGV[7] == '1' then
      set('opened', word(now))
      set('turn', word(turn + 1))
      show(word(now))
    end
  end
end
if #fields > 0 then call('HSET', load, unpack(fields)) end

-- average moves what is known towards a new value.
local function average(known, x)
  if x == '' then return known end
  if known == '0' then return string.format('%.17g', x + 0) end
  return string.format('%.17g', known + ARGV[13] * (x - known))
end

local model, ttft, tps = ARGV[10], ARGV[11], ARGV[12]
if ttft ~= '' or tps ~= '' then
  local known = call('HGET', speeds, model)
  local before_ttft, before_tps = string.match(known or '0 0', '^(%S+) (%S+)$')
  local learned = average(before_ttft, ttft) .. ' ' .. average(before_tps, tps)
  if learned ~= known then
    call('HSET', speeds, model, learned)
    if not known then call('PEXPIRE', speeds, life()) end
  end
end
return {DONE, now, changed}
