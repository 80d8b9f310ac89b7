package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// TestNodesStaySmall makes four calls a second for three hours, each with prompts and a model of its own, of which every
// other one crashes. Nodes come and are heard of no more.
func TestNodesStaySmall(t *testing.T) {
	t.Parallel()
	const step, calls, lease, retention = 250 * time.Millisecond, 3 * 60 * 60 * 4, time.Minute, time.Hour
	now := noon
	n := NewNodes(NodesOptions{Now: func() time.Time { return now }, Retention: retention})
	ctx := t.Context()
	prompt := func(call int) []selection.Prefix {
		prefixes := []selection.Prefix{{Key: selection.Key{1}, Tokens: 10}} // which all share
		for i := range 10 {
			key := selection.Key{2, byte(i), byte(call), byte(call >> 8), byte(call >> 16)}
			prefixes = append(prefixes, selection.Prefix{Key: key, Tokens: int64(20 + i)})
		}
		return prefixes
	}
	for call := range calls {
		id := fmt.Sprint("node-", call/240) // a new one each minute
		if call%240 == 0 {
			if err := n.Register(ctx, pool.NodeSpec{ID: id, MaxConcurrent: 1000}, pool.NodeReport{}); err != nil {
				t.Fatal(err)
			}
		}
		chosen, err := n.Choose(ctx, pool.Choosing{
			ID: pool.ID(fmt.Sprint("call-", call)), TTL: lease, Model: fmt.Sprint("model-", call/240), Prompt: 100, Prefixes: prompt(call),
			Contenders: []pool.Contender{{Candidate: selection.Candidate{Node: id, Base: 1, Perf: 1, Max: 1000, Slots: 1000}, Generation: id}},
		})
		if err != nil || chosen.Lease == nil {
			t.Fatalf("call %d: %+v, %v", call, chosen, err)
		}
		if call%2 == 0 {
			if err := n.Release(ctx, pool.Release{Lease: *chosen.Lease, Idle: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(step)
	}
	const perMinute = int(time.Minute / step)
	// Twice as long as it has to be there, at most.
	between := func(what string, got, want int) {
		t.Helper()
		if got < want || got > 2*want+perMinute {
			t.Errorf("%d %s are kept, want from %d to %d", got, what, want, 2*want+perMinute)
		}
	}
	prefixes := 10 * perMinute * int(pool.PrefixMemory/time.Minute)
	between("prefixes", len(n.prefixes.held), prefixes)
	if len(n.prefixes.line) != len(n.prefixes.held) {
		t.Errorf("%d of %d prefixes are in line", len(n.prefixes.line), len(n.prefixes.held))
	}
	between("generations of the prefix that all share", len(n.prefixes.held[selection.Key{1}]), int(pool.PrefixMemory/time.Minute))
	between("models", len(n.turns), int(pool.TurnMemory/time.Minute))
	between("nodes", len(n.nodes), int(retention/time.Minute))
	between("releases", len(n.released.until), perMinute/2*int(pool.ReleaseMemory/time.Minute))
	for id, known := range n.nodes {
		if leases, idle := len(known.leases), len(known.idle); leases > perMinute/2 || idle > perMinute/6 {
			t.Errorf("%s has %d leases and %d idle slots", id, leases, idle)
		}
	}
}

// TestGenerationsOfTwoProcesses holds that a generation is not that of a node in a process before this one.
func TestGenerationsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	generation := func(at time.Time) string {
		n := NewNodes(NodesOptions{Now: func() time.Time { return at }})
		if err := n.Register(t.Context(), pool.NodeSpec{ID: "n"}, pool.NodeReport{}); err != nil {
			t.Fatal(err)
		}
		fleet, err := n.Fleet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fleet.Nodes[0].Generation
	}
	if first, second := generation(noon), generation(noon.Add(time.Microsecond)); first == second {
		t.Errorf("%q is the generation of both", first)
	}
}

func TestNodesOwnClock(t *testing.T) {
	t.Parallel()
	n, before := NewNodes(NodesOptions{}), time.Now().Truncate(time.Microsecond)
	if fleet, err := n.Fleet(t.Context()); err != nil || fleet.Now.Before(before) {
		t.Errorf("it is %s, but it was %s before: %v", fleet.Now, before, err)
	}
}

// BenchmarkChoose takes a slot and gives it back, for a prompt with as many prefixes as there may be.
func BenchmarkChoose(b *testing.B) {
	for _, count := range []int{12, 50} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			n := NewNodes(NodesOptions{})
			var contenders []pool.Contender
			for i := range count {
				id := fmt.Sprintf("node-%02d", i)
				if err := n.Register(b.Context(), pool.NodeSpec{ID: id, MaxConcurrent: 8}, pool.NodeReport{}); err != nil {
					b.Fatal(err)
				}
				candidate := selection.Candidate{Node: id, Base: 100, Perf: 1, Max: 8, Slots: 8, SecondsPerToken: 0.001}
				contenders = append(contenders, pool.Contender{Candidate: candidate, Generation: id})
			}
			prompts := make([][]selection.Prefix, 100)
			for i := range prompts {
				for k := range selection.MaxPrefixes {
					prompts[i] = append(prompts[i], selection.Prefix{Key: selection.Key{byte(i), byte(k)}, Tokens: int64(100 * (k + 1))})
				}
			}
			call := 0
			b.ReportAllocs()
			for b.Loop() {
				call++
				chosen, err := n.Choose(b.Context(), pool.Choosing{
					ID: pool.ID(fmt.Sprint(call)), TTL: time.Minute, Model: "model", Contenders: contenders, Prompt: 1400,
					Prefixes: prompts[call%len(prompts)], Policy: selection.DefaultPolicy(),
				})
				if err != nil || chosen.Lease == nil {
					b.Fatalf("%+v, %v", chosen, err)
				}
				if err := n.Release(b.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Succeeded}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
