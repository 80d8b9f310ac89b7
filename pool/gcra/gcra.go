// Package gcra is the generic cell rate algorithm in whole numbers.
//
// It keeps what is still to drain instead of a theoretical arrival time, which is the algorithm's other form (ITU-T
// I.371: the continuous-state leaky bucket). Counting in units × period, a unit drains in exactly period/limit, so that no
// rate is rounded: seven at once at 7 a minute are seven. The script in pool/redis does the same sums.
package gcra

import (
	"math"
	"math/bits"
	"time"
)

// maxBacklog bounds a backlog, in units × microseconds. Lua counts in float64, which is exact up to 2^53, and a sum of two
// backlogs has to stay below that.
const maxBacklog = 1 << 52

// Rate is how fast units drain and how many may wait. Of makes one.
type Rate struct {
	// Limit units drain in one Period.
	Limit int64
	// Period is in microseconds.
	Period int64
	// Capacity is how many units go at once.
	Capacity int64
	// Scale is how many of the caller's units one unit stands for: 1 but for enormous limits.
	Scale int64
}

// Of is the rate of limit units per period, of which burst+1 go at once. The limit has to be positive and the period from
// a microsecond to a year; a negative burst is none. Amounts are rounded up to whole units of the Scale where the limit is
// above what can be counted exactly, 37 million a minute. As many go at once at most.
func Of(limit, burst int64, period time.Duration) Rate {
	r := Rate{Limit: limit, Period: period.Microseconds(), Capacity: satAdd(max(burst, 0), 1), Scale: 1}
	most := int64(maxBacklog/2) / r.Period
	if r.Limit > most {
		r.Scale = (r.Limit-1)/most + 1
		r.Limit, r.Capacity = r.Limit/r.Scale, max(r.Capacity/r.Scale, 1)
	}
	// An enormous burst is cut rather than scaled: it must not make a small limit coarse.
	r.Capacity = min(r.Capacity, most)
	return r
}

// Cost is the backlog that units add. What does not fit at all costs one unit more than the capacity.
func (r Rate) Cost(units int64) int64 { return min(r.debt(units), (r.Capacity+1)*r.Period) }

// Full is the backlog beyond which nothing is admitted.
func (r Rate) Full() int64 { return r.Capacity * r.Period }

// debt is the backlog that units add, whether or not they fit.
func (r Rate) debt(units int64) int64 {
	scaled := units / r.Scale
	if units%r.Scale != 0 {
		scaled++
	}
	hi, lo := bits.Mul64(uint64(max(scaled, 0)), uint64(r.Period))
	if hi != 0 || lo > maxBacklog {
		return maxBacklog
	}
	return int64(lo)
}

// Correction is the change of a backlog when units turn out to be others than booked; it may be negative. Both are
// bounded, so that a correction never books more than there is room to count.
func (r Rate) Correction(booked, actual int64) int64 { return r.debt(actual) - r.debt(booked) }

// Left is the most that can still be left at an instant of what was booked: drained is when everything had drained that
// was there right after it.
func (r Rate) Left(drained, now int64) int64 {
	time := drained - now
	switch {
	case time <= 0:
		return 0
	case time >= ceil(maxBacklog, r.Limit): // also keeps the product below from overflowing
		return maxBacklog
	default:
		return time * r.Limit
	}
}

// Level is a backlog at an instant. Its zero value is empty.
type Level struct {
	// At is in microseconds since 1970.
	At int64
	// Backlog is in units × microseconds.
	Backlog int64
	// Limit is the one of the Rate by which it drains.
	Limit int64
}

// Now is the level at a later instant. A clock that went back drains nothing, and drains on from where it is. Under
// another limit than before no more waits than the rate admits at once: what waited would take hours to drain at a small
// fraction of the pace that it was admitted at.
func (l Level) Now(r Rate, now int64) Level {
	to := Level{At: now, Limit: r.Limit}
	switch elapsed := now - l.At; {
	case elapsed <= 0:
		to.Backlog = l.Backlog
	case elapsed < ceil(l.Backlog, r.Limit): // or the product overflows
		to.Backlog = l.Backlog - elapsed*r.Limit
	}
	if l.Limit != r.Limit {
		to.Backlog = min(to.Backlog, r.Full())
	}
	return to
}

// Stale reports whether a level has to be kept as it is now even when nothing is added: its limit has changed, or the
// clock went back, after which it would not drain until the clock is there again.
func (l Level) Stale(r Rate, now int64) bool {
	return l.Now(r, now).Backlog > 0 && (l.At > now || l.Limit != r.Limit)
}

// Correct is the level at a later instant after a correction of what was booked at a rate. What is left drains by the
// limit that it had before, because the booking may be older than that one. A booking that has drained has nothing to
// give back: drained is when all had drained that was there right after it.
func (l Level) Correct(r Rate, change, drained, now int64) Level {
	inForce := r
	if l.Backlog > 0 {
		inForce.Limit = l.Limit
	}
	to := l.Now(inForce, now)
	if to.Backlog == 0 {
		to.Limit = r.Limit
	}
	return to.Add(max(change, -r.Left(drained, now)))
}

// Fits reports whether a cost may be added. A cost of 0 fits while a single unit would.
func (l Level) Fits(r Rate, cost int64) bool {
	return l.Backlog+max(cost, r.Period) <= r.Full()
}

// Add is the level after a cost or a correction.
func (l Level) Add(change int64) Level {
	l.Backlog = min(max(l.Backlog+change, 0), maxBacklog)
	return l
}

// Wait is how long until a cost fits; never when it exceeds the capacity.
func (l Level) Wait(r Rate, cost int64) (wait time.Duration, never bool) {
	cost = max(cost, r.Period)
	if cost > r.Full() {
		return 0, true
	}
	return micros(ceil(max(l.Backlog+cost-r.Full(), 0), r.Limit)), false
}

// Remaining is how many of the caller's units fit now.
func (l Level) Remaining(r Rate) int64 {
	return max(r.Full()-l.Backlog, 0) / r.Period * r.Scale
}

// Reset is how long until nothing is left to drain.
func (l Level) Reset(r Rate) time.Duration { return micros(ceil(l.Backlog, r.Limit)) }

// Drained is when nothing is left to drain, in microseconds since 1970.
func (l Level) Drained() int64 {
	if l.Backlog == 0 {
		return l.At
	}
	return l.At + ceil(l.Backlog, l.Limit)
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// micros is a time in microseconds, which a backlog keeps below the 292 years that a Duration holds.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func satAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
