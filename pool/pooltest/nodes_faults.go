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
