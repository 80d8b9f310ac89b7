package nodes

import (
	"context"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
)

const (
	// renewalsPerLease is how often a lease is renewed in its life: one renewal may fail.
	renewalsPerLease = 3
	// maxRenewal is the longest time between two: within it a pool that has lost leases has them again.
	maxRenewal = 2 * time.Second
	// catchUpEvery is how soon the pool is told again what it could not be told.
	catchUpEvery = time.Second
)

// live are the calls under way, and what the pool does not know of them.
type live struct {
	mu     sync.Mutex
	visits map[pool.ID]*visit
	// late: leases could not be renewed the last time.
	late bool
	// owed are slots that could not be given back yet. No slot is taken while the pool is away, so they are no more than
	// there were then.
	owed []owed
	// renewing and repaying: one round at a time.
	renewing, repaying sync.Mutex
}

// owed is a slot that is to be given back.
type owed struct {
	pool.Release
	// until is when its lease has ended by itself.
	until time.Time
}

func (l *live) add(c *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visits[c.lease.ID] = c
}

func (l *live) remove(c *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.visits, c.lease.ID)
}

func (l *live) all() []*visit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*visit, 0, len(l.visits))
	for _, c := range l.visits {
		all = append(all, c)
	}
	return all
}

func (l *live) setLate(late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = late
}

func (l *live) isLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late
}

func (l *live) owe(more ...owed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = append(l.owed, more...)
}

func (l *live) takeOwed() []owed {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.owed
	l.owed = nil
	return all
}

// renew lets the leases of all calls live on. One that has ended, or that the pool has lost, is taken anew: its call occupies
// the node all the same, and whoever is sent to the node next has to see that.
func (v *Vendor) renew(ctx context.Context) {
	if !v.live.renewing.TryLock() {
		return // the last round still waits for the pool
	}
	defer v.live.renewing.Unlock()
	calls := v.live.all()
	renewals := make([]pool.NodeRenewal, 0, len(calls))
	for _, c := range calls {
		renewals = append(renewals, pool.NodeRenewal{Lease: c.lease, Restore: true})
	}
	if len(renewals) > 0 {
		_, err := v.options.Nodes.Renew(ctx, renewals, v.options.Lease)
		v.live.setLate(err != nil) // the pool tells of its outages itself
		return
	}
	v.live.setLate(false)
}

// catchUp tells the pool what it could not be told while it was away.
func (v *Vendor) catchUp(ctx context.Context) {
	if v.live.isLate() {
		v.renew(ctx)
	}
	v.repay(ctx)
}

// repay gives slots back that could not be given back before. Otherwise they would be taken until their leases end, long after
// the pool is there again.
func (v *Vendor) repay(ctx context.Context) {
	if !v.live.repaying.TryLock() {
		return
	}
	defer v.live.repaying.Unlock()
	all := v.live.takeOwed()
	for i, one := range all {
		if time.Now().After(one.until) {
			continue
		}
		if err := v.options.Nodes.Release(ctx, one.Release); err != nil {
			v.live.owe(all[i:]...) // the others would fare no better
			return
		}
		v.lines.freed(one.Lease.Model)
	}
}
