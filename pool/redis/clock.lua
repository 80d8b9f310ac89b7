-- Every script begins with this file: the clock, and how numbers are written. Numbers are whole and below 2^53, where
-- float64 is exact.
--
-- ARGV[1] is the time in microseconds since 1970, which only tests set; empty means Redis' own.

local call = redis.call

-- word writes a number out. Redis would, but takes longer for it than for most commands. There are machines on which %d
-- is of 32 bits.
local function word(n) return string.format('%.0f', n) end

local now, now_word = tonumber(ARGV[1]), ARGV[1]
-- What keys outlive their use by, in milliseconds. On a test's clock they have to last while the test does.
local spare = 3600000
if not now then
  local seconds, micros = unpack(call('TIME'))
  now, spare = seconds * 1000000 + micros, 1
  now_word = seconds .. string.sub('000000', #micros + 1) .. micros
end

-- The first number of every reply. AGAIN: nothing was done, but there is less to do when the same is asked again.
local REFUSED, DONE, ELSEWHEN, AGAIN = 0, 1, 2, 3
