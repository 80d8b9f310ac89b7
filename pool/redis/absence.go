package redis

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// outageReach is for how long Redis may have been there since a node was heard of that still counts as heard of at the end of
// an outage, and for how long after one nodes are kept that Redis has lost. Agents whose heartbeats fail try again within
// that time.
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

// mostOutages is how many outages are remembered. They matter for half a minute each, so that more of them are blips.
const mostOutages = 64

// absence is when Redis was away lately, by the pool's clock in microseconds. An outage lasts from the last answer, or the
// first call after it that failed, to the next answer. Heartbeats could not be taken meanwhile. It is safe for concurrent use.
type absence struct {
	// open: it is not over yet.
	open atomic.Bool
	// turn counts the outages that have ended.
	turn atomic.Uint64
	// there is when Redis answered last.
	there atomic.Int64

	// forgot is when Redis has lost leases, as far as is known; 0 = never.
	forgot atomic.Int64

	mu sync.Mutex
	// began is of the one that is open.
	began int64
	// past are those that have ended, in their order.
	past []span
}

type span struct{ began, ended int64 }

// failed notes a call that failed and when it began.
func (a *absence) failed(began int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	began = max(began, a.there.Load()) // others were answered while it waited
	if a.open.Load() {
		began = min(began, a.began)
	}
	a.began = began
	a.open.Store(true)
}

// answered notes that Redis is there.
func (a *absence) answered(now int64) {
	a.there.Store(now)
	if !a.open.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Load() {
		if now-a.began >= forgetsAfter.Microseconds() {
			a.forgot.Store(now)
		}
		a.add(span{min(a.began, now), now})
		a.open.Store(false)
	}
}

// lost notes that Redis has lost what it knew at an instant, also where no call has failed: it was away for a moment, and
// nobody called.
func (a *absence) lost(knew, now int64) {
	a.forgot.Store(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := a.ended(now)
	if a.open.Load() || ended != 0 && now-ended <= noticedWithin.Microseconds() {
		return
	}
	a.add(span{min(max(knew, ended), now), now})
}

// add remembers an outage that has just ended, and forgets those that tell nothing any more.
func (a *absence) add(o span) {
	// Where the clock was set back, the former ones are of another time.
	a.past = slices.DeleteFunc(a.past, func(p span) bool { return p.ended > o.began })
	there, from := int64(0), o.began
	for i, p := range slices.Backward(a.past) {
		if there += from - p.ended; there > outageReach.Microseconds() {
			a.past = slices.Delete(a.past, 0, i+1)
			break
		}
		from = p.began
	}
	if len(a.past) == mostOutages {
		shortest := 0
		for i, p := range a.past {
			if p.ended-p.began < a.past[shortest].ended-a.past[shortest].began {
				shortest = i
			}
		}
		a.past = slices.Delete(a.past, shortest, shortest+1)
	}
	a.past = append(a.past, o)
	a.turn.Add(1)
}

// corrected notes by how much the idea of the time was wrong at an instant: by so much later has an outage begun that is not
// over. A clock that goes ahead suddenly lets leases end that are in use.
func (a *absence) corrected(by, now int64) {
	if by >= forgetsAfter.Microseconds() && a.there.Load() != 0 {
		a.forgot.Store(now)
	}
	if !a.open.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Load() {
		a.began += by
	}
}

// heard is when a node with this heartbeat counts as heard of: then, or at the end of an outage if until then Redis was not
// there for longer than agents take to try again.
func (a *absence) heard(heartbeat, now int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := a.ended(now)
	if ended <= heartbeat {
		return heartbeat
	}
	there := ended - heartbeat
	for _, o := range a.past {
		there -= max(o.ended-max(o.began, heartbeat), 0)
	}
	if there > outageReach.Microseconds() {
		return heartbeat
	}
	return ended
}

// last is when the last outage ended, 0 where there was none.
func (a *absence) last(now int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended(now)
}

// ended is last for who has the lock.
func (a *absence) ended(now int64) int64 {
	if len(a.past) == 0 || a.past[len(a.past)-1].ended > now { // the clock was set back
		return 0
	}
	return a.past[len(a.past)-1].ended
}

// settled reports whether the leases that Redis has are those of the calls that run.
func (a *absence) settled(now int64) bool {
	forgot := a.forgot.Load()
	if forgot > now { // the clock was set back
		a.forgot.CompareAndSwap(forgot, now)
		return false
	}
	return forgot == 0 || now-forgot >= settling.Microseconds()
}
