package redis

import (
	"sync/atomic"
	"time"
)

// trustedFor is how long a guess is good enough to tell how old a heartbeat is.
const trustedFor = time.Minute

// clock guesses what time it is for Redis, whose clock alone counts: a script that was given another window than the
// present one says so and is asked again. The guess is this machine's clock, corrected by what Redis last said.
type clock struct {
	// test is the clock that tests set for both sides, or nil.
	test func() time.Time
	// local is this machine's clock.
	local func() time.Time
	// born is when this clock was made, and learned how many nanoseconds later Redis last said what time it is; 0 = never.
	born    time.Time
	learned atomic.Int64
	// ahead is how far Redis' clock is ahead of this machine's, in microseconds.
	ahead atomic.Int64
}

// guess is in microseconds since 1970.
func (c *clock) guess() int64 {
	if c.test != nil {
		return c.test().UnixMicro()
	}
	return c.local().UnixMicro() + c.ahead.Load()
}

// learn takes what Redis said that the time is, and returns by how much guesses were short of it.
func (c *clock) learn(now int64) int64 {
	if c.test != nil {
		return 0
	}
	ahead := now - c.local().UnixMicro()
	c.learned.Store(int64(time.Since(c.born)))
	return ahead - c.ahead.Swap(ahead)
}

// doubtful reports whether Redis has not said for a while what time it is, so that this machine's clock may have been set.
func (c *clock) doubtful() bool {
	learned := c.learned.Load()
	return c.test == nil && (learned == 0 || time.Since(c.born)-time.Duration(learned) > trustedFor)
}

// write tells a script the time of a test's clock, or that Redis' own counts.
func (c *clock) write(r *request, guess int64) {
	if c.test != nil {
		r.numbers(guess)
	} else {
		r.word("")
	}
}
