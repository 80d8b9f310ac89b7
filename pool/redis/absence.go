package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// outageReach is for how long before an outage a node may have been heard of and still counts as heard of at its end, and
// for how long after it nodes are kept that Redis has lost. Agents whose heartbeats fail try again within that time.
const outageReach = 30 * time.Second

// noticedWithin is how long after an outage it may be noticed what Redis has lost in it: fleets are read anew sooner.
const noticedWithin = 2 * staleAfter

// absence is the last time that Redis was away, an outage: from the first call that failed to the next that did not, by the pool's clock
// in microseconds. Heartbeats could not be taken meanwhile. It is safe for concurrent use.
type absence struct {
	// open: it is not over yet.
	open atomic.Bool
	// turn counts the outages that have ended.
	turn atomic.Uint64

	mu           sync.Mutex
	began, ended int64
}

// failed notes a call that failed and when it began.
func (a *absence) failed(began int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Load() {
		a.began = min(a.began, began)
		return
	}
	// What was heard of at the end of an outage just before this one was heard of, so that the two are one.
	if a.ended == 0 || began-a.ended > outageReach.Microseconds() {
		a.began = began
	}
	a.open.Store(true)
}

// answered notes that Redis is there.
func (a *absence) answered(now int64) {
	if !a.open.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Load() {
		a.ended = max(now, a.began)
		a.turn.Add(1)
		a.open.Store(false)
	}
}

// lost notes that Redis has lost what it knew at an instant, also where no call has failed: it was away for a moment, and
// nobody called.
func (a *absence) lost(knew, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Load() || a.ended != 0 && now-a.ended <= noticedWithin.Microseconds() {
		return
	}
	if a.ended == 0 || now-a.ended > outageReach.Microseconds() {
		a.began = knew
	}
	a.ended = now
	a.turn.Add(1)
}

// last are the beginning and the end of the last outage that has ended, zeros where there was none.
func (a *absence) last() (began, ended int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == 0 {
		return 0, 0
	}
	return a.began, a.ended
}
