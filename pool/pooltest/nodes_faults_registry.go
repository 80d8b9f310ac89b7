package pooltest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
)

// tryAnyway lets a request try a node for which none is free, where it may.
func tryAnyway(may func(load pool.NodeLoad) bool) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			chosen, err := n.Choose(ctx, c)
			for _, contender := range c.Contenders {
				if chosen.Lease != nil || err != nil {
					break
				}
				var loads []pool.NodeLoad
				loads, err = n.Loads(ctx, c.Model, []string{contender.Node})
				if err == nil && loads[0].InFlight < contender.Slots && may(loads[0]) {
					chosen.Lease = &pool.Lease{ID: c.ID, Node: contender.Node, Model: c.Model, Queued: c.Prompt, Trial: true}
					err = force(ctx, n, *chosen.Lease, c.TTL)
				}
			}
			return chosen, err
		}})
	}
}

var circuitFaults = []nodeFault{
	{"two requests may try", tryAnyway(func(load pool.NodeLoad) bool { return load.Probing && load.InFlight < 2 })},
	{"any request may try", tryAnyway(func(load pool.NodeLoad) bool { return load.Probing })},
	{"the cooldown is not waited for", tryAnyway(func(load pool.NodeLoad) bool { return load.Failures >= pool.BreakAfter && !load.Probing })},
	{"no request may try", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			chosen, err := n.Choose(ctx, c)
			if chosen.Lease != nil && chosen.Lease.Trial {
				err = errors.Join(err, n.Release(ctx, pool.Release{Lease: *chosen.Lease}))
				chosen.Lease = nil
			}
			return chosen, err
		}})
	}},
	{"a trial is not called one", chosenAs(func(chosen *pool.Chosen) {
		if chosen.Lease != nil {
			chosen.Lease.Trial = false
		}
	})},
	{"a circuit opens after four failures", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, release: func(ctx context.Context, r pool.Release) error {
			loads, err := n.Loads(ctx, "", []string{r.Lease.Node})
			if err == nil && r.Outcome == pool.Failed && loads[0].Failures == pool.BreakAfter-2 {
				r.Lease.Trial = true
			}
			return errors.Join(err, n.Release(ctx, r))
		}})
	}},
	{"a failure is not counted", releasingAs(func(r *pool.Release) bool {
		if r.Outcome == pool.Failed {
			r.Outcome = pool.Unjudged
		}
		return false
	})},
	{"a success does not count", releasingAs(func(r *pool.Release) bool {
		if r.Outcome == pool.Succeeded {
			r.Outcome = pool.Unjudged
		}
		return false
	})},
	{"a call of which nothing is known counts as a success", releasingAs(func(r *pool.Release) bool {
		if r.Outcome == pool.Unjudged {
			r.Outcome = pool.Succeeded
		}
		return false
	})},
	{"a call of which nothing is known counts as a failure", releasingAs(func(r *pool.Release) bool {
		if r.Outcome == pool.Unjudged {
			r.Outcome = pool.Failed
		}
		return false
	})},
	{"a trial that says nothing goes on", releasingAs(func(r *pool.Release) bool { return r.Lease.Trial && r.Outcome == pool.Unjudged })},
	{"a trial that is lost goes on", choosingAs(func(c *pool.Choosing) {
		for _, contender := range c.Contenders {
			if contender.Trial {
				c.TTL += time.Hour
			}
		}
	})},
	{"an outcome counts whenever its request began", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		latest := map[string]int64{}
		var mu sync.Mutex
		return both(faultyNodes{
			Nodes: n,
			choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
				chosen, err := n.Choose(ctx, c)
				mu.Lock()
				defer mu.Unlock()
				if chosen.Lease != nil {
					latest[chosen.Lease.Node] = chosen.Lease.Turn
				}
				return chosen, err
			},
			release: func(ctx context.Context, r pool.Release) error {
				mu.Lock()
				r.Lease.Turn = latest[r.Lease.Node]
				mu.Unlock()
				return n.Release(ctx, r)
			},
		})
	}},
	{"an open circuit is not shown", showingAs(func(node *pool.Node) { node.OpenedAt = time.Time{} })},
}

var registryFaults = []nodeFault{
	{"a registration keeps the generation", showingAs(func(node *pool.Node) { node.Generation = node.ID })},
	{"a generation is one of the instant", showingAs(func(node *pool.Node) { node.Generation = node.HeartbeatAt.String() })},
	{"an unloaded model keeps the generation", showingAs(func(node *pool.Node) {
		node.Generation = node.ID + node.RegisteredAt.Format(time.RFC3339Nano)
	})},
	{"leases are counted as of now", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, show: func(ctx context.Context, node pool.Node) pool.Node {
			loads, err := n.Loads(ctx, "", []string{node.ID})
			if err == nil {
				node.Counted = loads[0].InFlight
			}
			return node
		}})
	}},
	{"leases are not counted", showingAs(func(node *pool.Node) { node.Counted = 0 })},
	{"speeds are not shown", showingAs(func(node *pool.Node) { node.Speeds = nil })},
	{"a node counts as heard of when it registered", showingAs(func(node *pool.Node) { node.HeardAt = node.RegisteredAt })},
	{"a heartbeat is not noted", showingAs(func(node *pool.Node) { node.HeartbeatAt, node.HeardAt = node.RegisteredAt, node.RegisteredAt })},
	{"a heartbeat ends a drain", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, beat: func(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
			_ = n.Drain(ctx, id, false)
			return n.Beat(ctx, id, report)
		}})
	}},
	{"a registration ends a drain", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, register: func(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
			return errors.Join(n.Register(ctx, spec, report), n.Drain(ctx, spec.ID, false))
		}})
	}},
	{"a registration forgets what there was", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, register: func(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
			_, err := n.Remove(ctx, spec.ID, "")
			return errors.Join(err, n.Register(ctx, spec, report))
		}})
	}},
	{"another endpoint changes nothing", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		endpoints := map[string]string{}
		var mu sync.Mutex
		return both(faultyNodes{
			Nodes: n,
			register: func(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
				mu.Lock()
				endpoints[spec.ID] = spec.Endpoint
				mu.Unlock()
				spec.Endpoint = "https://one.example"
				return n.Register(ctx, spec, report)
			},
			show: func(_ context.Context, node pool.Node) pool.Node {
				mu.Lock()
				defer mu.Unlock()
				node.Endpoint = endpoints[node.ID]
				return node
			},
		})
	}},
	{"a heartbeat registers", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, beat: func(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
			node, load, err := n.Beat(ctx, id, report)
			if errors.Is(err, pool.ErrUnknownNode) {
				if err := n.Register(ctx, spec(id, 1), report); err != nil {
					return node, load, err
				}
				return n.Beat(ctx, id, report)
			}
			return node, load, err
		}})
	}},
	{"any key removes a node", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, remove: func(ctx context.Context, id, _ string) (bool, error) { return n.Remove(ctx, id, "") }})
	}},
	{"a removal leaves the leases", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		f, w := watch(n, clock)
		f.register = func(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
			err := n.Register(ctx, spec, report)
			for _, l := range w.all(func(l watchedLease, ended bool) bool { return l.Node == spec.ID && !ended && !l.released }) {
				err = errors.Join(err, force(ctx, n, l.Lease, lease))
			}
			return err
		}
		return both(f)
	}},
	{"a token is replaced by whoever asks", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, reseal: func(ctx context.Context, id string, former, token []byte) (bool, error) {
			fleet, err := n.Fleet(ctx)
			for _, node := range fleet.Nodes {
				if node.ID == id {
					former = node.Token
				}
			}
			if err != nil {
				return false, err
			}
			return n.Reseal(ctx, id, former, token)
		}})
	}},
	{"nodes are in any order", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, fleet: func(fleet pool.Fleet) pool.Fleet {
			slices.Reverse(fleet.Nodes)
			return fleet
		}})
	}},
	{"a node that is not heard of is not shown", func(n pool.Nodes, clock *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, fleet: func(fleet pool.Fleet) pool.Fleet {
			fleet.Nodes = slices.DeleteFunc(fleet.Nodes, func(node pool.Node) bool {
				return clock.Now().Sub(node.HeartbeatAt) > time.Minute
			})
			return fleet
		}})
	}},
}
