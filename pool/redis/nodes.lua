-- Scripts about nodes go on with this file: how a node's slots are kept.
--
-- ARGV[2] is for how many microseconds a node is kept that is not heard of.
--
-- The load of a node is a hash:
--   at        when it was last heard of, in microseconds; absent = it is not registered
--   n, x      how many leases there are, and an instant in milliseconds before which none is over ('' = there are none)
--   q         the tokens of prompts that those leases have queued
--   failures, opened, turn, probe    the circuit: when it opened in microseconds, and the lease that tries it; '' = none
-- Beside it are a sorted set of leases by their ends in milliseconds, a hash of what each of them has queued, and a sorted
-- set of the slots that are held idle. Counting in the hash spares a look at the others while no lease is over.

local retention = tonumber(ARGV[2])
local millis = math.floor(now / 1000)
local millis_word = word(millis)

-- The places of HMGET's answer, which is the node's state from then on. A choice reads it of every contender, so that what
-- only some calls need is read apart.
local AT, N, X, Q, OPENED = 1, 2, 3, 4, 5

-- How many leases that are over are looked at together.
local AT_ONCE = 1000

-- life is for how many milliseconds the keys of a node are kept that are written now.
local function life() return word(math.ceil(retention / 1000) + spare) end

-- after is the end of what begins now, in milliseconds.
local function after(micros) return math.ceil((now + micros) / 1000) end

-- queued_of adds up what the leases have queued, and drops what is known of others. Their keys get their lives anew.
local function queued_of(inflight, lease)
  local sum, from, kept = 0, 0, {}
  repeat
    local ids = call('ZRANGE', inflight, word(from), word(from + AT_ONCE - 1))
    local queued = #ids > 0 and call('HMGET', lease, unpack(ids)) or {}
    for i = 1, #ids do
      kept[#kept + 1] = {ids[i], queued[i] or '0'}
      sum = sum + (queued[i] or 0)
    end
    from = from + AT_ONCE
  until #ids < AT_ONCE
  call('DEL', lease)
  for i = 1, #kept do call('HSET', lease, unpack(kept[i])) end
  call('PEXPIRE', inflight, life())
  call('PEXPIRE', lease, life())
  return sum
end

-- heal ends the leases whose time is over: each gives back what it has queued, and the probe if it was that.
local function heal(s, load, inflight, lease)
  local known = true
  repeat
    local ended = call('ZRANGEBYSCORE', inflight, '-inf', millis_word, 'LIMIT', '0', word(AT_ONCE))
    if #ended > 0 then
      local queued = call('HMGET', lease, unpack(ended))
      for i = 1, #ended do
        known = known and queued[i]
        s[Q] = s[Q] - (queued[i] or 0)
      end
      call('HDEL', lease, unpack(ended))
      call('ZREM', inflight, unpack(ended))
    end
  until #ended < AT_ONCE
  -- What went wrong, as when Redis evicts a key, does not stay so: leases are counted anew, what they have queued is added up
  -- where it is not known of each of them, and a probe has a lease.
  s[N] = call('ZCARD', inflight)
  if not known or call('HLEN', lease) ~= s[N] then s[Q] = queued_of(inflight, lease) end
  local probe = call('HGET', load, 'probe')
  if probe and probe ~= '' and not call('ZSCORE', inflight, probe) then call('HSET', load, 'probe', '') end
  if s[N] == 0 then
    s[X], s[Q] = '', 0
    call('DEL', lease)
  else
    s[X] = call('ZRANGE', inflight, '0', '0', 'WITHSCORES')[2]
    s[Q] = math.max(s[Q], 0)
  end
  call('HSET', load, 'n', word(s[N]), 'x', s[X], 'q', word(s[Q]))
end

-- state_of is a node's state, with numbers where it has them, or nil where it is not registered. With kept it is taken for
-- registered even so, with nothing on it.
local function state_of(load, inflight, lease, kept)
  local s = call('HMGET', load, 'at', 'n', 'x', 'q', 'opened')
  local at = s[AT]
  if not at or at + retention <= now then
    if kept ~= '1' then return nil end
    call('DEL', load, inflight, lease)
    s[AT], s[N], s[X], s[Q], s[OPENED] = false, 0, '', 0, ''
    return s
  end
  local x = s[X]
  s[N], s[Q] = s[N] + 0, s[Q] + 0
  if x ~= '' and x + 0 <= millis then heal(s, load, inflight, lease) end
  return s
end

-- circuit_of is the rest of a node's circuit: turn, probe and failures.
local function circuit_of(load) return unpack(call('HMGET', load, 'turn', 'probe', 'failures')) end

-- enlist writes a lease down that is none yet, with more words for the hash.
local function enlist(s, load, inflight, lease, id, ends, queued, ...)
  call('ZADD', inflight, word(ends), id)
  call('HSET', lease, id, word(queued))
  local x = s[X]
  if x == '' or ends < x + 0 then x = word(ends) end
  call('HSET', load, 'n', word(s[N] + 1), 'x', x, 'q', word(s[Q] + queued), ...)
  s[N], s[X], s[Q] = s[N] + 1, x, s[Q] + queued
  if s[N] == 1 then -- these keys are new
    call('PEXPIRE', inflight, life())
    call('PEXPIRE', lease, life())
  end
end

-- adopt begins a node. Its turns begin with the time, so that calls to one of the same name, which is gone, say nothing of it.
local function adopt(s, load)
  call('HSET', load, 'at', now_word, 'n', '0', 'x', '', 'q', '0', 'failures', '0', 'opened', '', 'turn', now_word, 'probe', '')
  call('PEXPIRE', load, life())
  s[AT] = now_word
end

-- cooled tells whether a circuit that opened then may be tried. One that is yet to open opened before the clock was set back.
local function cooled(opened, cooldown) return math.abs(now - opened) >= cooldown end

-- The current weights of a model's round robin are a text: when they are forgotten, then "name weight " of each node, of which
-- those come last that took part last. Most of them change with each choice, so that to write one text is quicker than to
-- write many fields.

-- currents_of returns the weights by name, as words, and the names in their order.
local function currents_of(key)
  local text, current, order = call('GET', key), {}, {}
  if text and now < string.sub(text, 1, 16) + 0 then
    for name, weight in string.gmatch(string.sub(text, 18), '([^ ]+) (-?%d+) ') do
      current[name], order[#order + 1] = weight, name
    end
  end
  return current, order
end

-- keep_currents writes weights, words or numbers, down for so many microseconds, the last of them up to most.
local function keep_currents(key, current, order, memory, most)
  local words, w = {string.format('%016.0f', now + memory)}, 1
  for i = math.max(1, #order - most + 1), #order do
    local name = order[i]
    local weight = current[name]
    words[w + 1] = name
    words[w + 2] = type(weight) == 'number' and word(weight) or weight
    w = w + 2
  end
  words[#words + 1] = ''
  call('SET', key, table.concat(words, ' '), 'PX', word(math.ceil(memory / 1000) + spare))
end
