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

const (
	// forgetsAfter is from how long an outage may have been longer than a lease: nobody could renew it meanwhile.
	forgetsAfter = 5 * time.Second
	// settling is for how long nobody is sent to a node after Redis has lost leases, or may have: until every replica that has
	// calls under way has left Redis alone and has renewed their leases.
	settling = 5 * time.Second
)

// absence is the last time that Redis was away, an outage: from the first call that failed to the next that did not, by the pool's clock
// in microseconds. Heartbeats could not be taken meanwhile. It is safe for concurrent use.
type absence struct {
	// open: it is not over yet.
	open atomic.Bool
	// turn counts the outages that have ended.
	turn atomic.Uint64

	// forgot is when Redis has lost leases, as far as is known; 0 = never.
	forgot atomic.Int64

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
		if a.ended-a.began >= forgetsAfter.Microseconds() {
			a.forgot.Store(a.ended)
		}
		a.turn.Add(1)
		a.open.Store(false)
	}
}

// lost notes that Redis has lost what it knew at an instant, also where no call has failed: it was away for a moment, and
// nobody called.
func (a *absence) lost(knew, now int64) {
	a.forgot.Store(now)
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

// settled reports whether the leases that Redis has are those of the calls that run.
func (a *absence) settled(now int64) bool {
	forgot := a.forgot.Load()
	return forgot == 0 || now-forgot >= settling.Microseconds()
}
