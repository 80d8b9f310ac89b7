package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/selection"
)

// TestFleetIsToldOfChanges has one client show what another has changed, though its cache would last for ever.
func TestFleetIsToldOfChanges(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"a server": pooltest.StartRedis(t).Addr, "a cluster": strings.Join(pooltest.StartCluster(t), ",")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both := twoClients(t, Options{Addr: addr})
			one, other := both[0], both[1].(*Nodes)
			ctx := t.Context()
			spec := pool.NodeSpec{ID: "n", Engine: "vllm", Endpoint: "https://n.example", KeyID: "k", MaxConcurrent: 4}
			shows := func(what string, is func(nodes []pool.Node) bool) {
				t.Helper()
				eventually(t, what, func() bool {
					// As if there were no bound to how long it is cached.
					if v := other.view.Load(); v != nil && !v.until.IsZero() {
						lasting := *v
						lasting.until = time.Now().Add(time.Hour)
						other.view.CompareAndSwap(v, &lasting)
					}
					fleet, err := other.Fleet(ctx)
					if err != nil {
						t.Log(err) // servers that get no time for long think each other gone
					}
					return err == nil && is(fleet.Nodes)
				})
			}
			shows("nobody is there", func(nodes []pool.Node) bool { return len(nodes) == 0 })
			if err := one.Register(ctx, spec, healthy()); err != nil {
				t.Fatal(err)
			}
			shows("a registration", func(nodes []pool.Node) bool { return len(nodes) == 1 && !nodes[0].Drained })
			if err := one.Drain(ctx, "n", true); err != nil {
				t.Fatal(err)
			}
			shows("a drain", func(nodes []pool.Node) bool { return nodes[0].Drained })
			report := healthy()
			report.Trouble = "hot"
			if _, _, err := one.Beat(ctx, "n", report); err != nil {
				t.Fatal(err)
			}
			shows("a heartbeat", func(nodes []pool.Node) bool { return nodes[0].Trouble == "hot" })
			for range pool.BreakAfter {
				chosen, err := one.Choose(ctx, oneSlot("n"))
				if err != nil || chosen.Lease == nil {
					t.Fatal(chosen, err)
				}
				if err := one.Release(ctx, pool.Release{Lease: *chosen.Lease, Outcome: pool.Failed}); err != nil {
					t.Fatal(err)
				}
			}
			shows("a circuit that opens", func(nodes []pool.Node) bool { return !nodes[0].OpenedAt.IsZero() })
			if _, err := one.Remove(ctx, "n", ""); err != nil {
				t.Fatal(err)
			}
			shows("a removal", func(nodes []pool.Node) bool { return len(nodes) == 0 })
		})
	}
}

// oneSlot asks for a slot of one node, under a new id.
func oneSlot(id string) pool.Choosing {
	return pool.Choosing{
		ID: pool.ID(pooltest.Prefix(nil)[5:20]), TTL: time.Minute, Model: "m", Prompt: 10, Policy: selection.DefaultPolicy(),
		Contenders: []pool.Contender{{Candidate: selection.Candidate{Node: id, Base: 100, Perf: 1, Max: 9, Slots: 9}, Generation: id}},
	}
}

// TestOwnChangesShowAtOnce holds that a client which has changed something does not show the fleet of before.
func TestOwnChangesShowAtOnce(t *testing.T) {
	nodes := fresh(t).Nodes(NodesOptions{})
	if err := nodes.Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: 1}, healthy()); err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		if err := nodes.Drain(t.Context(), "n", n%2 == 0); err != nil {
			t.Fatal(err)
		}
		fleet, err := nodes.Fleet(t.Context())
		if err != nil || len(fleet.Nodes) != 1 || fleet.Nodes[0].Drained != (n%2 == 0) {
			t.Fatalf("after change %d: %+v, %v", n, fleet, err)
		}
	}
}

// TestFleetAsksOnlyForChanges counts what Redis is asked.
func TestFleetAsksOnlyForChanges(t *testing.T) {
	server := pooltest.StartRedis(t)
	nodes := open(t, Options{Addr: server.Addr, Timeout: patience}).Nodes(NodesOptions{})
	for _, id := range []string{"a", "b", "c"} {
		if err := nodes.Register(t.Context(), pool.NodeSpec{ID: id, MaxConcurrent: 9}, healthy()); err != nil {
			t.Fatal(err)
		}
	}
	monitor := newMonitor(t, server.Addr)
	asked := func(what string, most int) {
		t.Helper()
		if _, err := nodes.Fleet(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := monitor.commands(); len(got) > most {
			t.Errorf("%s: the fleet asks %d times, want at most %d: %q", what, len(got), most, got)
		}
	}
	refreshed := func() { // so that no entry of the cache ends meanwhile
		t.Helper()
		eventually(t, "a fleet of now", func() bool {
			_, err := nodes.Fleet(t.Context())
			monitor.commands()
			return err == nil && time.Until(nodes.view.Load().until) > staleAfter*2/3
		})
	}
	refreshed()
	asked("nothing has happened", 0)
	for n := range 3 {
		chosen, err := nodes.Choose(t.Context(), oneSlot("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes.Begun(t.Context(), *chosen.Lease); err != nil {
			t.Fatal(err)
		}
		if err := nodes.Release(t.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Outcome(n), Measured: pool.Speed{TTFT: 1, TPS: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	monitor.commands()
	asked("requests are served", 0)
	refreshed()
	if _, _, err := nodes.Beat(t.Context(), "b", healthy()); err != nil {
		t.Fatal(err)
	}
	monitor.commands()
	asked("a node sends a heartbeat", 3) // whether all is told, the nodes by heartbeat, and that node
}

// TestCacheIsBounded holds that what Redis does not take back is asked anew in time.
func TestCacheIsBounded(t *testing.T) {
	nodes := fresh(t).Nodes(NodesOptions{})
	if err := nodes.Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: 1}, healthy()); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.Fleet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(nodes.view.Load().until); left > staleAfter || staleAfter > 5*time.Second {
		t.Errorf("the fleet is cached for %v, want up to %v", left, staleAfter)
	}
}

// TestWithoutTracking has a server that cannot tell of changes. The fleet is asked for each time.
func TestWithoutTracking(t *testing.T) {
	for name, settings := range map[string][]string{
		"no tracking": {"--rename-command", "CLIENT", ""},
		"no RESP3":    {"--rename-command", "HELLO", ""},
	} {
		t.Run(name, func(t *testing.T) {
			both := twoClients(t, Options{Addr: pooltest.StartRedis(t, settings...).Addr})
			for n, drained := range []bool{true, false, true} {
				if n == 0 {
					if err := both[0].Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: 9}, healthy()); err != nil {
						t.Fatal(err)
					}
				}
				if err := both[0].Drain(t.Context(), "n", drained); err != nil {
					t.Fatal(err)
				}
				fleet, err := both[1].Fleet(t.Context())
				if err != nil || len(fleet.Nodes) != 1 || fleet.Nodes[0].Drained != drained {
					t.Fatalf("%+v, %v; want drained %v", fleet, err, drained)
				}
				if chosen, err := both[1].Choose(t.Context(), oneSlot("n")); err != nil || chosen.Lease == nil {
					t.Fatal(chosen, err)
				}
			}
		})
	}
}

// TestFleetOfAWrongClock has a machine whose clock is off by an hour ask for nothing but the fleet.
func TestFleetOfAWrongClock(t *testing.T) {
	addr, prefix := pooltest.Redis(t), pooltest.Prefix(t)
	right := open(t, Options{Addr: addr, KeyPrefix: prefix, Timeout: patience}).Nodes(NodesOptions{})
	if err := right.Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: 1}, healthy()); err != nil {
		t.Fatal(err)
	}
	wrong := open(t, Options{Addr: addr, KeyPrefix: prefix, Timeout: patience})
	wrong.clock.local = func() time.Time { return time.Now().Add(-time.Hour) }
	fleet, err := wrong.Nodes(NodesOptions{}).Fleet(t.Context())
	if err != nil || len(fleet.Nodes) != 1 {
		t.Fatal(fleet, err)
	}
	if off := fleet.Now.Sub(fleet.Nodes[0].HeartbeatAt); off < 0 || off > patience {
		t.Errorf("a node that has just registered was heard of %v ago", off)
	}
}

// TestOthersChangesDoNotKeepRequestsWaiting for one reading after the other. What this client has changed shows at once all
// the same, and so does it when a cache is lost.
func TestOthersChangesDoNotKeepRequestsWaiting(t *testing.T) {
	server := pooltest.StartRedis(t)
	both := twoClients(t, Options{Addr: server.Addr})
	one, other := both[0], both[1].(*Nodes)
	if err := one.Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: 9}, healthy()); err != nil {
		t.Fatal(err)
	}
	drained := func() bool {
		t.Helper()
		fleet, err := other.Fleet(t.Context())
		if err != nil || len(fleet.Nodes) != 1 {
			t.Fatal(fleet, err)
		}
		return fleet.Nodes[0].Drained
	}
	rests := func(d time.Duration) {
		resting := *other.view.Load()
		resting.until, resting.rests = time.Now(), time.Now().Add(d)
		other.view.Store(&resting)
	}
	drain := func(n pool.Nodes, is bool) {
		t.Helper()
		told := other.client.told.Load()
		if err := n.Drain(t.Context(), "n", is); err != nil {
			t.Fatal(err)
		}
		eventually(t, "Redis tells of the change", func() bool { return other.client.told.Load() > told })
	}
	drained()
	if left := time.Until(other.view.Load().rests); left > longestRest {
		t.Errorf("there is no reading for %v", left)
	}
	rests(time.Hour)
	drain(one, true)
	if drained() {
		t.Error("the fleet was read again")
	}
	rests(0)
	if !drained() {
		t.Error("the fleet was not read again")
	}
	rests(time.Hour)
	drain(other, false)
	if drained() {
		t.Error("an own change does not show")
	}
	rests(time.Hour)
	view := other.view.Load()
	tell(t, server.Addr, "CLIENT", "KILL", "TYPE", "normal")
	eventually(t, "the fleet is read again", func() bool {
		_, err := other.Fleet(t.Context())
		return err == nil && other.view.Load() != view
	})
}
