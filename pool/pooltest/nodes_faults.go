package pooltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// TestNodesFaults plants one fault after the other in an implementation and shows that TestNodes catches each. The
// implementation's fleet has to be up to date at once.
func TestNodesFaults(t *testing.T, open func(t *testing.T, clock *Clock) []pool.Nodes) {
	for _, subject := range []struct {
		name   string
		faults []nodeFault
	}{
		{"slots", slotFaults},
		{"leases", leaseFaults},
		{"circuits", circuitFaults},
		{"choices", choiceFaults},
		{"nodes", registryFaults},
	} {
		t.Run(subject.name, func(t *testing.T) {
			for _, fault := range subject.faults {
				t.Run(fault.name, func(t *testing.T) {
					t.Parallel()
					caught := fault.caughtBy(t, open)
					if len(caught) == 0 {
						t.Errorf("nothing caught it")
					}
					t.Logf("caught by %q", caught)
				})
			}
		})
	}
}

// caughtBy returns the tests that fail with a fault.
func (f nodeFault) caughtBy(t *testing.T, open func(t *testing.T, clock *Clock) []pool.Nodes) []string {
	var caught []string
	for _, subject := range nodeSubjects {
		for _, test := range subject.tests {
			clock := NewClock(noon)
			clients := f.plant(open(t, clock)[0], clock)
			if err := failureOf(t.Context(), test, clients, clock); err != nil {
				caught = append(caught, test.name)
			}
		}
	}
	return caught
}

type nodeFault struct {
	name string
	// plant makes two clients that err.
	plant func(n pool.Nodes, clock *Clock) []pool.Nodes
}

// failureOf runs a test that may fail.
func failureOf(ctx context.Context, test nodeTest, clients []pool.Nodes, clock *Clock) error {
	r := &recorder{ctx: ctx}
	var done sync.WaitGroup
	done.Go(func() { test.run(&nodesHarness{failer: r, clients: clients, clock: clock}) })
	done.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failures...)
}

// recorder notes what failed.
type recorder struct {
	ctx      context.Context
	mu       sync.Mutex
	failures []error
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Errorf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// both makes two clients of one.
func both(n pool.Nodes) []pool.Nodes { return []pool.Nodes{n, n} }

// choosingAs changes what is asked for.
func choosingAs(change func(c *pool.Choosing)) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			c.Contenders = slices.Clone(c.Contenders)
			change(&c)
			return n.Choose(ctx, c)
		}})
	}
}

// contendersAs changes every contender.
func contendersAs(change func(c *pool.Contender)) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return choosingAs(func(c *pool.Choosing) {
		for i := range c.Contenders {
			change(&c.Contenders[i])
		}
	})
}

// chosenAs changes what was chosen.
func chosenAs(change func(chosen *pool.Chosen)) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			chosen, err := n.Choose(ctx, c)
			change(&chosen)
			return chosen, err
		}})
	}
}

// releasingAs changes what is released, or drops it.
func releasingAs(change func(r *pool.Release) (drop bool)) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, release: func(ctx context.Context, r pool.Release) error {
			if change(&r) {
				return nil
			}
			return n.Release(ctx, r)
		}})
	}
}

// renewingAs changes what is renewed.
func renewingAs(change func(r *pool.NodeRenewal)) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, renew: func(ctx context.Context, leases []pool.NodeRenewal, ttl time.Duration) ([]pool.ID, error) {
			leases = slices.Clone(leases)
			for i := range leases {
				change(&leases[i])
			}
			return n.Renew(ctx, leases, ttl)
		}})
	}
}

// showingAs changes what is shown of each node.
func showingAs(change func(node *pool.Node)) func(n pool.Nodes, clock *Clock) []pool.Nodes {
	return func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, show: func(_ context.Context, node pool.Node) pool.Node {
			change(&node)
			return node
		}})
	}
}

var choiceFaults = []nodeFault{
	{"every contender is in the shortlist", choosingAs(func(c *pool.Choosing) { c.Policy.Plain = true })},
	{"what is queued does not weigh", contendersAs(func(c *pool.Contender) { c.SecondsPerToken = 0 })},
	{"what a node holds does not weigh", choosingAs(func(c *pool.Choosing) { c.Policy.Affinity = 0 })},
	{"the ranks are one", contendersAs(func(c *pool.Contender) { c.Rank = 0 })},
	{"no prompt is remembered", choosingAs(func(c *pool.Choosing) { c.Prefixes = nil })},
	{"only the shallowest beginning is remembered", choosingAs(func(c *pool.Choosing) { c.Prefixes = c.Prefixes[:min(len(c.Prefixes), 1)] })},
	{"only the whole prompt is remembered", choosingAs(func(c *pool.Choosing) { c.Prefixes = c.Prefixes[max(len(c.Prefixes)-1, 0):] })},
	{"a prompt is remembered whatever becomes of the node", contendersAs(func(c *pool.Contender) { c.Generation = c.Node })},
	{"a prompt is remembered of all nodes", contendersAs(func(c *pool.Contender) { c.Generation = "all" })},
	{"a match is never more than a half", choosingAs(func(c *pool.Choosing) {
		c.Prefixes = slices.Clone(c.Prefixes)
		for i := range c.Prefixes {
			c.Prefixes[i].Tokens /= 2
		}
	})},
	{"a prompt is remembered though no one is free", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			chosen, err := n.Choose(ctx, c)
			if chosen.Lease != nil || len(c.Contenders) == 0 {
				return chosen, err
			}
			other := c
			other.ID, other.Contenders = c.ID+"-other", slices.Clone(c.Contenders[:1])
			other.Contenders[0].Max, other.Contenders[0].Slots = 1000, 1000
			lost, err := n.Choose(ctx, other)
			if lost.Lease != nil {
				err = errors.Join(err, n.Release(ctx, pool.Release{Lease: *lost.Lease}))
			}
			return chosen, err
		}})
	}},
	{"holders are those of any beginning", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, holders: func(ctx context.Context, prefixes []selection.Prefix, generations []string) ([]bool, error) {
			holds := []bool{}
			for _, generation := range generations {
				one, err := n.Holders(ctx, prefixes, []string{generation})
				if err != nil {
					return nil, err
				}
				holds = append(holds, one[0])
			}
			return holds, nil
		}})
	}},
	{"holders are those of the whole prompt", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, holders: func(ctx context.Context, prefixes []selection.Prefix, generations []string) ([]bool, error) {
			return n.Holders(ctx, prefixes[max(len(prefixes)-1, 0):], generations)
		}})
	}},
	{"all models share their turns", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
			model := c.Model
			c.Model = "model"
			chosen, err := n.Choose(ctx, c)
			if chosen.Lease != nil {
				chosen.Lease.Model = model
			}
			return chosen, err
		}})
	}},
	{"each client has turns of its own", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		own := func(name string) pool.Nodes {
			return faultyNodes{Nodes: n, choose: func(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
				model := c.Model
				c.Model += name
				chosen, err := n.Choose(ctx, c)
				if chosen.Lease != nil {
					chosen.Lease.Model = model
				}
				return chosen, err
			}}
		}
		return []pool.Nodes{own(""), own("-other")}
	}},
	{"a speed is learned twice", func(n pool.Nodes, _ *Clock) []pool.Nodes {
		return both(faultyNodes{Nodes: n, release: func(ctx context.Context, r pool.Release) error {
			twice := pool.Release{Lease: r.Lease, Measured: r.Measured}
			twice.Lease.ID += "-twice"
			return errors.Join(n.Release(ctx, r), n.Release(ctx, twice))
		}})
	}},
	{"a speed is that of any model", releasingAs(func(r *pool.Release) bool { r.Lease.Model = "model"; return false })},
	{"a success alone teaches a speed", releasingAs(func(r *pool.Release) bool {
		if r.Outcome != pool.Succeeded {
			r.Measured = pool.Speed{}
		}
		return false
	})},
}
