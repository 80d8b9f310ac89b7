package redis

import (
	"sync/atomic"
	"time"
)

// clock guesses what time it is for Redis, whose clock alone counts: a script that was given another window than the
// present one says so and is asked again. The guess is this machine's clock, corrected by what Redis last said.
type clock struct {
	// test is the clock that tests set for both sides, or nil.
	test func() time.Time
	// local is this machine's clock.
	local func() time.Time
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

// learn takes what Redis said that the time is.
func (c *clock) learn(now int64) {
	if c.test == nil {
		c.ahead.Store(now - c.local().UnixMicro())
	}
}

// write tells a script the time of a test's clock, or that Redis' own counts.
func (c *clock) write(r *request, guess int64) {
	if c.test != nil {
		r.numbers(guess)
	} else {
		r.word("")
	}
}
