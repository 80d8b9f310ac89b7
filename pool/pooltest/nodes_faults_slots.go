package pooltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
)

var slotFaults = []nodeFault{
	{"foreign load is not counted", contendersAs(func(c *pool.Contender) { c.External = 0 })},
	{"foreign load is what was reported, as long as it is more than the leases", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			c.Contenders = slices.Clone(c.Contenders)
			for i, contender := range c.Contenders {
				loads, err := n.Loads(ctx, c.Model, []string{contender.Node})
				if err != nil {
					return pool.Chosen{}, err
				}
				c.Contenders[i].External = max(contender.External-loads[0].InFlight, 0)
			}
			return n.Choose(ctx, c)
		}})
	}},
	{"a level leaves all slots", contendersAs(func(c *pool.Contender) { c.Slots = c.Max })},
	{"a model has slots of its own", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		choose := f.choose
		f.choose = func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			c.Contenders = slices.Clone(c.Contenders)
			for i, contender := range c.Contenders {
				others := int64(len(w.all(func(l watchedLease, ended bool) bool {
					return l.Node == contender.Node && l.Model != c.Model && !l.released && !ended
				})))
				c.Contenders[i].Slots += others
				c.Contenders[i].Max += others
			}
			return choose(ctx, c)
		}
		return both(f)
	}},
	{"a slot is looked for first and taken later", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			var ids []string
			for _, contender := range c.Contenders {
				ids = append(ids, contender.Node)
			}
			loads, err := n.Loads(ctx, c.Model, ids)
			time.Sleep(time.Millisecond) // as a round trip takes
			if err != nil {
				return pool.Chosen{}, err
			}
			chosen, err := n.Choose(ctx, c)
			for i, contender := range c.Contenders {
				if chosen.Lease == nil && loads[i].InFlight < contender.Slots && loads[i].Failures < pool.BreakAfter {
					chosen.Lease = &pool.Lease{ID: c.ID, Node: contender.Node, Model: c.Model}
					err = errors.Join(err, force(ctx, n, *chosen.Lease, c.TTL))
				}
			}
			return chosen, err
		}})
	}},
	{"a choice counts its own slot as taken before", chosenAs(func(chosen *pool.Chosen) {
		if chosen.Lease != nil {
			chosen.Occupied++
		}
	})},
	{"what is held idle counts for every node", contendersAs(func(c *pool.Contender) { c.Paced = true })},
	{"what is held idle counts for none", contendersAs(func(c *pool.Contender) { c.Paced = false })},
	{"nothing is held idle", releasingAs(func(r *pool.Release) bool { r.Idle = 0; return false })},
	{"what is held idle ends a millisecond late", releasingAs(func(r *pool.Release) bool {
		if r.Idle > 0 {
			r.Idle += time.Millisecond
		}
		return false
	})},
	{"another level keeps what is held idle", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		made := 0
		return both(faultyNodes{Nodes: n, beat: func(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
			before, err := n.Loads(ctx, "", []string{id})
			if err != nil {
				return pool.Node{}, pool.NodeLoad{}, err
			}
			node, load, err := n.Beat(ctx, id, report)
			for ; err == nil && load.Idle < before[0].Idle; load.Idle++ {
				made++
				lease := pool.Lease{ID: pool.ID(fmt.Sprint("idle-", made)), Node: id, Turn: -1}
				err = errors.Join(force(ctx, n, lease, time.Hour), n.Release(ctx, pool.Release{Lease: lease, Idle: time.Hour}))
			}
			return node, load, err
		}})
	}},
}

var leaseFaults = []nodeFault{
	{"a lease is not healed when it ends", choosingAs(func(c *pool.Choosing) { c.TTL += time.Hour })},
	{"a lease ends a millisecond early", choosingAs(func(c *pool.Choosing) { c.TTL -= time.Millisecond })},
	{"a lease ends on the microsecond", choosingAs(func(c *pool.Choosing) { c.TTL -= 544 * time.Microsecond })},
	{"an end gives back twice", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		f.load = func(id string, load pool.NodeLoad) pool.NodeLoad {
			for _, l := range w.all(func(l watchedLease, ended bool) bool { return l.Node == id && ended && !l.released }) {
				load.Queued -= l.Queued
			}
			return load
		}
		return both(f)
	}},
	{"an end gives no tokens back", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		f.load = func(id string, load pool.NodeLoad) pool.NodeLoad {
			for _, l := range w.all(func(l watchedLease, ended bool) bool { return l.Node == id && ended && !l.released }) {
				load.Queued += l.Queued
			}
			return load
		}
		return both(f)
	}},
	{"a release after the end gives back again", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		release := f.release
		f.release = func(ctx context.Context, r pool.Release) error {
			if len(w.all(func(l watchedLease, ended bool) bool { return l.ID == r.Lease.ID && ended })) > 0 {
				for _, l := range w.all(func(l watchedLease, ended bool) bool { return l.Node == r.Lease.Node && !ended && !l.released }) {
					if err := n.Begun(ctx, l.Lease); err != nil {
						return err
					}
				}
			}
			return release(ctx, r)
		}
		return both(f)
	}},
	{"a release after the end is lost", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		release := f.release
		f.release = func(ctx context.Context, r pool.Release) error {
			if len(w.all(func(l watchedLease, ended bool) bool { return l.ID == r.Lease.ID && ended })) > 0 {
				return nil
			}
			return release(ctx, r)
		}
		return both(f)
	}},
	{"a release after the end holds a slot idle", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		release := f.release
		f.release = func(ctx context.Context, r pool.Release) error {
			if len(w.all(func(l watchedLease, ended bool) bool { return l.ID == r.Lease.ID && ended && !l.released })) > 0 {
				if err := force(ctx, n, r.Lease, time.Hour); err != nil {
					return err
				}
			}
			return release(ctx, r)
		}
		return both(f)
	}},
	{"a release counts whenever it is repeated", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		times := map[pool.ID]int{}
		var mu sync.Mutex
		return both(faultyNodes{Nodes: n, release: func(ctx context.Context, r pool.Release) error {
			mu.Lock()
			times[r.Lease.ID]++
			if again := times[r.Lease.ID]; again > 1 {
				r.Lease.ID = pool.ID(fmt.Sprint(r.Lease.ID, "-", again))
			}
			mu.Unlock()
			return n.Release(ctx, r)
		}})
	}},
	{"a release gives no slot back", releasingAs(func(r *pool.Release) bool { r.Lease.ID += "-other"; return false })},
	{"a prompt that was read stays queued", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, begun: func(context.Context, pool.Lease) error { return nil }})
	}},
	{"a first token takes all that is queued", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		f.begun = func(ctx context.Context, lease pool.Lease) error {
			for _, l := range w.all(func(l watchedLease, _ bool) bool { return l.Node == lease.Node }) {
				if err := n.Begun(ctx, l.Lease); err != nil {
					return err
				}
			}
			return n.Begun(ctx, lease)
		}
		return both(f)
	}},
	{"a renewal does nothing", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, renew: func(context.Context, []pool.NodeRenewal, time.Duration) ([]pool.ID, error) { return nil, nil }})
	}},
	{"a renewal says nothing of what is gone", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, renew: func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
			_, err := n.Renew(ctx, leases, ttl)
			return nil, err
		}})
	}},
	{"a renewal never shortens a lease", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, renew: func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
			return n.Renew(ctx, leases, max(ttl, lease))
		}})
	}},
	{"a renewal takes anew what is gone", renewingAs(func(r *pool.NodeRenewal) { r.Restore = true })},
	{"a renewal takes nothing anew", renewingAs(func(r *pool.NodeRenewal) { r.Restore = false })},
	{"a renewal takes anew what was released", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, renew: func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
			gone, err := n.Renew(ctx, leases, ttl)
			for _, renewal := range leases {
				if i := slices.Index(gone, renewal.Lease.ID); i >= 0 && renewal.Restore {
					gone = slices.Delete(gone, i, i+1)
					renewal.Lease.ID += "-again"
					err = errors.Join(err, force(ctx, n, renewal.Lease, ttl))
				}
			}
			return gone, err
		}})
	}},
	{"what is taken anew queues its prompt again", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, _ := watch(n, clock)
		again := map[string]int64{}
		f.renew = func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
			gone, err := n.Renew(ctx, leases, ttl)
			for _, renewal := range leases {
				if renewal.Restore && !slices.Contains(gone, renewal.Lease.ID) {
					again[renewal.Lease.Node] += renewal.Lease.Queued
				}
			}
			return gone, err
		}
		f.load = func(id string, load pool.NodeLoad) pool.NodeLoad {
			load.Queued += again[id]
			return load
		}
		f.begun, f.choose, f.release = nil, nil, nil
		return both(f)
	}},
	{"what is ahead counts the prompt itself", chosenAs(func(chosen *pool.Chosen) {
		if chosen.Lease != nil {
			chosen.Lease.Ahead += chosen.Lease.Queued
		}
	})},
}
