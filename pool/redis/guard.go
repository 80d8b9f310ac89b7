package redis

import (
	"sync"
	"time"
)

const (
	// restAfter is how many calls in a row have to fail before Redis is left alone.
	restAfter = 3
	// rest is how long it is left alone, so that a Redis that hangs costs requests their time once in a while and not
	// each time.
	rest = 2 * time.Second
)

// guard keeps calls away from a Redis that does not answer. After a rest one call at a time tries whether it is back.
// It is safe for concurrent use.
type guard struct {
	now func() time.Time

	mu       sync.Mutex
	failures int
	// until is when the rest ends. It is zero while calls pass.
	until   time.Time
	probing bool
	// turn counts rests and probes. What ends in another turn than it began in says nothing about the present one.
	turn uint64
}

// change is what the end of a call means for the calls to come.
type change int

const (
	unchanged change = iota
	wentDown
	stayedDown
	cameBack
)

func newGuard(now func() time.Time) *guard { return &guard{now: now} }

// enter asks to make a call, and leave has to be told how it ended.
func (g *guard) enter() (turn uint64, may bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until.IsZero() {
		return g.turn, true
	}
	if g.probing || g.now().Before(g.until) {
		return 0, false
	}
	g.probing = true
	return g.turn, true
}

// leave tells how a call ended that began in a turn.
func (g *guard) leave(turn uint64, err error) change {
	g.mu.Lock()
	defer g.mu.Unlock()
	if turn != g.turn {
		return unchanged
	}
	switch resting := !g.until.IsZero(); {
	case err == nil && resting:
		g.failures, g.until, g.probing = 0, time.Time{}, false
		g.turn++
		return cameBack
	case err == nil:
		g.failures = 0
	case resting:
		g.until, g.probing = g.now().Add(rest), false
		g.turn++
		return stayedDown
	default:
		if g.failures++; g.failures >= restAfter {
			g.until = g.now().Add(rest)
			g.turn++
			return wentDown
		}
	}
	return unchanged
}
