package memory

import (
	"context"
	"time"

	"github.com/ai-process/ktms/pool"
)

// Begun implements pool.Nodes.
func (n *Nodes) Begun(ctx context.Context, lease pool.Lease) error {
	now, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	known := n.nodes[lease.Node]
	if known == nil {
		return nil
	}
	known.heal(now)
	if s, live := known.leases[lease.ID]; live {
		known.queued -= s.queued
		s.queued = 0
		known.leases[lease.ID] = s
	}
	return nil
}

// Renew implements pool.Nodes.
func (n *Nodes) Renew(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) (gone []pool.ID, err error) {
	now, err := n.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	for _, renewal := range leases {
		if !n.renew(renewal, now, after(now, ttl)) {
			gone = append(gone, renewal.Lease.ID)
		}
	}
	return gone, nil
}

// renew lets a lease go on, or takes its slot anew, and reports whether there is one then.
func (n *Nodes) renew(renewal pool.NodeRenewal, now, ends int64) bool {
	known, id := n.nodes[renewal.Lease.Node], renewal.Lease.ID
	if known == nil {
		return false
	}
	known.heal(now)
	s, live := known.leases[id]
	switch {
	case live:
		s.ends = ends
		known.leases[id] = s
		known.soonest = min(known.soonest, ends)
	case renewal.Restore && !n.released.holds(id, now):
		known.take(id, slot{ends: ends})
	default:
		return false
	}
	return true
}

// Release implements pool.Nodes.
func (n *Nodes) Release(ctx context.Context, release pool.Release) error {
	now, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	lease := release.Lease
	if n.released.holds(lease.ID, now) {
		return nil
	}
	n.released.add(lease.ID, now)
	known := n.nodes[lease.Node]
	if known == nil {
		return nil
	}
	known.heal(now)
	if known.free(lease.ID) && release.Idle > 0 {
		known.rest(lease.ID, after(now, release.Idle))
	}
	turn := known.circuit.turn
	known.circuit.judge(lease, release.Outcome, now)
	if known.circuit.turn != turn { // the fleet tells of that
		n.shown = nil
	}
	known.learn(lease.Model, release.Measured)
	return nil
}
