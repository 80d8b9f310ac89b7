package nodes

import (
	"context"
	"sync"

	"github.com/ai-process/ktms/pool"
)

// renewalsPerLease is how often a lease is renewed in its life: one renewal may fail.
const renewalsPerLease = 3

// live are the calls under way.
type live struct {
	mu     sync.Mutex
	visits map[pool.ID]*visit
	// renewing: one round at a time.
	renewing sync.Mutex
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

// renew lets the leases of all calls live on. One that ended while the pool was away is taken anew: its call occupies the
// node all the same.
func (v *Vendor) renew(ctx context.Context) {
	if !v.live.renewing.TryLock() {
		return // the last round still waits for the pool
	}
	defer v.live.renewing.Unlock()
	calls := v.live.all()
	if len(calls) == 0 {
		return
	}
	renewals := make([]pool.NodeRenewal, 0, len(calls))
	byID := make(map[pool.ID]*visit, len(calls))
	for _, c := range calls {
		renewals = append(renewals, pool.NodeRenewal{Lease: c.lease, Restore: c.lost})
		byID[c.lease.ID] = c
	}
	gone, err := v.options.Nodes.Renew(ctx, renewals, v.options.Lease)
	if err != nil {
		return // the pool tells of its outages itself
	}
	for _, c := range calls {
		c.lost = false
	}
	for _, id := range gone {
		if c := byID[id]; c != nil {
			c.lost = true
		}
	}
}
