-- Lets leases of nodes live on, and takes those anew that are gone and are to be restored.
--
-- KEYS  of each lease its node's load, leases, what they have queued, and the memory of its release
-- ARGV  clock, retention, how long leases live, then of each lease
--         id, 'r' to restore it, and 'k' if its node counts as registered even when it is not
-- Returns {DONE, now, then of each lease 1 if there is one now, else 0}.

local reply, ends = {DONE, now}, after(ARGV[3])
for i = 1, #KEYS / 4 do
  local k, id, flags = 4 * i - 3, ARGV[2 * i + 2], ARGV[2 * i + 3]
  local load, inflight, lease = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local restore = string.find(flags, 'r', 1, true)
  local s, there = state_of(load, inflight, lease, restore and string.find(flags, 'k', 1, true) and '1'), 0
  if s and call('ZSCORE', inflight, id) then
    there = 1
    call('ZADD', inflight, word(ends), id)
    if s[X] == '' or ends < s[X] + 0 then call('HSET', load, 'x', word(ends)) end
  elseif s and restore and now >= tonumber(call('GET', KEYS[k + 3]) or 0) then
    there = 1
    if not s[AT] then adopt(s, load) end
    enlist(s, load, inflight, lease, id, ends, 0)
  end
  reply[i + 2] = there
end
return reply
