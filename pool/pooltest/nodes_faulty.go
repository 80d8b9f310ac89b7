package pooltest

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// faultyNodes does some things in another way than the Nodes within.
type faultyNodes struct {
	pool.Nodes
	register func(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error
	beat     func(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error)
	remove   func(ctx context.Context, id, keyID string) (bool, error)
	reseal   func(ctx context.Context, id string, former, token []byte) (bool, error)
	// show changes a node before the fleet or a heartbeat shows it.
	show    func(ctx context.Context, node pool.Node) pool.Node
	fleet   func(fleet pool.Fleet) pool.Fleet
	load    func(id string, load pool.NodeLoad) pool.NodeLoad
	holders func(ctx context.Context, prefixes []selection.Prefix, generations []string) ([]bool, error)
	choose  func(ctx context.Context, c pool.Choosing) (pool.Chosen, error)
	begun   func(ctx context.Context, lease pool.Lease) error
	renew   func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error)
	release func(ctx context.Context, release pool.Release) error
}

func (f faultyNodes) Register(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
	if f.register == nil {
		return f.Nodes.Register(ctx, spec, report)
	}
	return f.register(ctx, spec, report)
}

func (f faultyNodes) Beat(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
	beat := f.Nodes.Beat
	if f.beat != nil {
		beat = f.beat
	}
	node, load, err := beat(ctx, id, report)
	if err == nil && f.show != nil {
		node = f.show(ctx, node)
	}
	if err == nil && f.load != nil {
		load = f.load(id, load)
	}
	return node, load, err
}

func (f faultyNodes) Remove(ctx context.Context, id, keyID string) (bool, error) {
	if f.remove == nil {
		return f.Nodes.Remove(ctx, id, keyID)
	}
	return f.remove(ctx, id, keyID)
}

func (f faultyNodes) Reseal(ctx context.Context, id string, former, token []byte) (bool, error) {
	if f.reseal == nil {
		return f.Nodes.Reseal(ctx, id, former, token)
	}
	return f.reseal(ctx, id, former, token)
}

func (f faultyNodes) Fleet(ctx context.Context) (pool.Fleet, error) {
	fleet, err := f.Nodes.Fleet(ctx)
	for i := range fleet.Nodes {
		if f.show != nil {
			fleet.Nodes[i] = f.show(ctx, fleet.Nodes[i])
		}
	}
	if f.fleet != nil {
		fleet = f.fleet(fleet)
	}
	return fleet, err
}

func (f faultyNodes) Loads(ctx context.Context, model string, ids []string) ([]pool.NodeLoad, error) {
	loads, err := f.Nodes.Loads(ctx, model, ids)
	if f.load != nil {
		for i, load := range loads {
			loads[i] = f.load(ids[i], load)
		}
	}
	return loads, err
}

func (f faultyNodes) Holders(ctx context.Context, prefixes []selection.Prefix, generations []string) ([]bool, error) {
	if f.holders == nil {
		return f.Nodes.Holders(ctx, prefixes, generations)
	}
	return f.holders(ctx, prefixes, generations)
}

func (f faultyNodes) Choose(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
	if f.choose == nil {
		return f.Nodes.Choose(ctx, c)
	}
	return f.choose(ctx, c)
}

func (f faultyNodes) Begun(ctx context.Context, lease pool.Lease) error {
	if f.begun == nil {
		return f.Nodes.Begun(ctx, lease)
	}
	return f.begun(ctx, lease)
}

func (f faultyNodes) Renew(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
	if f.renew == nil {
		return f.Nodes.Renew(ctx, leases, ttl)
	}
	return f.renew(ctx, leases, ttl)
}

func (f faultyNodes) Release(ctx context.Context, release pool.Release) error {
	if f.release == nil {
		return f.Nodes.Release(ctx, release)
	}
	return f.release(ctx, release)
}

// watched are the leases that a fault has to know of.
type watched struct {
	clock  *Clock
	mu     sync.Mutex
	leases map[pool.ID]*watchedLease
}

type watchedLease struct {
	pool.Lease
	ends     time.Time
	released bool
}

// watch returns Nodes that note their leases. A fault that goes on with them is made of what it returns.
func watch(n pool.Nodes, clock *Clock) (faultyNodes, *watched) {
	w := &watched{clock: clock, leases: map[pool.ID]*watchedLease{}}
	return faultyNodes{
		Nodes: n,
		choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			chosen, err := n.Choose(ctx, c)
			if chosen.Lease != nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.leases[c.ID] = &watchedLease{Lease: *chosen.Lease, ends: clock.Now().Add(c.TTL)}
			}
			return chosen, err
		},
		renew: func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
			gone, err := n.Renew(ctx, leases, ttl)
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, renewal := range leases {
				if l := w.leases[renewal.Lease.ID]; l != nil && clock.Now().Before(l.ends) {
					l.ends = clock.Now().Add(ttl)
				}
			}
			return gone, err
		},
		release: func(ctx context.Context, release pool.Release) error {
			w.mu.Lock()
			if l := w.leases[release.Lease.ID]; l != nil {
				l.released = true
			}
			w.mu.Unlock()
			return n.Release(ctx, release)
		},
	}, w
}

// all returns the leases that are wanted: lost ones have ended and were not released.
func (w *watched) all(wanted func(l watchedLease, ended bool) bool) []watchedLease {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []watchedLease
	for l := range maps.Values(w.leases) {
		if ended := !w.clock.Now().Before(l.ends.Add(time.Millisecond)); wanted(*l, ended) {
			found = append(found, *l)
		}
	}
	return found
}

// force takes a slot whether or not there is one.
func force(ctx context.Context, n pool.Nodes, lease pool.Lease, ttl time.Duration) error {
	_, err := n.Renew(ctx, []pool.NodeRenewal{{Lease: lease, Restore: true}}, ttl)
	return err
}
