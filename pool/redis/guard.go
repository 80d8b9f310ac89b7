package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"
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

	mu sync.Mutex
	// failures are those in a row.
	failures int
	// until is when the rest ends. It is zero while calls pass.
	until   time.Time
	probing bool
	// turn counts rests and probes. What ends in another turn than it began in says nothing about the present one.
	turn uint64
	// breaks counts the connections that broke, each once.
	breaks uint64
}

// pass lets one call through.
type pass struct {
	turn, breaks uint64
	// began is when the call did, by the pool's clock in microseconds.
	began int64
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
func (g *guard) enter() (p pass, may bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until.IsZero() {
		return pass{turn: g.turn, breaks: g.breaks}, true
	}
	if g.probing || g.now().Before(g.until) {
		return pass{}, false
	}
	g.probing = true
	return pass{turn: g.turn, breaks: g.breaks}, true
}

// resting reports whether calls are kept away, or one of them tries.
func (g *guard) resting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.until.IsZero()
}

// leave tells how a call ended. All calls under way when a connection breaks are one failure, since they say the same.
func (g *guard) leave(p pass, err error) change {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.turn != g.turn {
		return unchanged
	}
	if broke(err) {
		if p.breaks != g.breaks {
			return unchanged
		}
		g.breaks++
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

// broke reports whether a call ended because its connection did, rather than with an answer or without any in time.
func broke(err error) bool {
	_, answered := rueidis.IsRedisErr(err)
	return err != nil && !answered && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errReply) && !errors.Is(err, errWindow)
}
