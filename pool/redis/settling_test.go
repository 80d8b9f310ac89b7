package redis

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/selection"
)

// TestLossThatNobodySaw loses everything, and the nodes register elsewhere before this gateway looks: it sees nodes that never
// left, and leases that others hold may be missing even so.
func TestLossThatNobodySaw(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("a", "b")
	healthyBoth := map[string]selection.Health{"a": selection.Healthy, "b": selection.Healthy}
	f.want(f.Nodes, "before", healthyBoth)
	another := f.gateway()
	tell(t, f.server.Addr, "FLUSHALL")
	for _, id := range []string{"b", "a"} {
		spec := pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: "https://" + id + ".example", KeyID: "key-" + id, MaxConcurrent: 4}
		if err := another.Register(t.Context(), spec, healthy()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the loss is seen", func() bool {
		f.want(f.Nodes, "after", healthyBoth)
		return !f.client.away.settled(f.client.clock.guess())
	})
	if chosen, err := f.Choose(t.Context(), oneSlot("a")); err != nil || chosen.Lease != nil {
		t.Errorf("chosen %+v, %v; want nobody as long as leases may be missing", chosen, err)
	}
	f.clock.Advance(settling)
	if chosen, err := f.Choose(t.Context(), oneSlot("a")); err != nil || chosen.Lease == nil {
		t.Errorf("chosen %+v, %v; want a slot", chosen, err)
	}
}

// TestALongOutageOutlivesLeases: nobody could renew them, so that they may be missing though Redis has lost nothing.
func TestALongOutageOutlivesLeases(t *testing.T) {
	t.Parallel()
	for outage, lost := range map[time.Duration]bool{forgetsAfter - 1: false, forgetsAfter: true} {
		var a absence
		a.failed(1)
		end := 1 + outage.Microseconds()
		a.answered(end)
		if a.settled(end) == lost || !a.settled(end+settling.Microseconds()) {
			t.Errorf("after an outage of %v leases count as known: %t", outage, a.settled(end))
		}
	}
}

// TestRedisThatKnowsLess goes back to what it knew before, as a server does that had not saved the last of it, or a replica
// that takes over without having been told of it.
func TestRedisThatKnowsLess(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n", "other")
	healthyBoth := map[string]selection.Health{"n": selection.Healthy, "other": selection.Healthy}
	f.want(f.Nodes, "before", healthyBoth)
	key := f.client.keys.fleet("n")
	before := tell(t, f.server.Addr, "HGET", key, "at")
	f.clock.Advance(time.Second)
	if _, _, err := f.Beat(t.Context(), "n", healthy()); err != nil {
		t.Fatal(err)
	}
	f.want(f.Nodes, "after a heartbeat", healthyBoth)
	if !f.client.away.settled(f.client.clock.guess()) {
		t.Fatal("leases count as lost though nothing is")
	}
	tell(t, f.server.Addr, "HSET", key, "at", before)
	eventually(t, "it is seen", func() bool {
		f.want(f.Nodes, "after", healthyBoth)
		return !f.client.away.settled(f.client.clock.guess())
	})
	if chosen, err := f.Choose(t.Context(), oneSlot("n")); err != nil || chosen.Lease != nil {
		t.Errorf("chosen %+v, %v; want nobody as long as leases may be missing", chosen, err)
	}
}

// TestClockThatGoesAhead has a Redis whose clock is set to later than all leases end. They are in use all the same.
func TestClockThatGoesAhead(t *testing.T) {
	t.Parallel()
	server := pooltest.StartRedis(t)
	client := open(t, Options{Addr: server.Addr, Timeout: patience})
	nodes := client.Nodes(NodesOptions{})
	if err := nodes.Register(t.Context(), pool.NodeSpec{ID: "n", MaxConcurrent: 9}, healthy()); err != nil {
		t.Fatal(err)
	}
	if chosen, err := nodes.Choose(t.Context(), oneSlot("n")); err != nil || chosen.Lease == nil {
		t.Fatal(chosen, err)
	}
	// To this client it looks as if its own clock had been set back.
	client.clock.local = func() time.Time { return time.Now().Add(-time.Minute) }
	early, err := nodes.Choose(t.Context(), oneSlot("n"))
	if err != nil || early.Lease != nil || early.Occupied != 9 {
		t.Errorf("chosen %+v, %v; want nobody as long as leases may be missing", early, err)
	}
	eventually(t, "the slot that it took is given back", func() bool {
		loads, err := nodes.Loads(t.Context(), "m", []string{"n"})
		return err == nil && loads[0].InFlight == 1
	})
	eventually(t, "a slot is to be had again", func() bool {
		chosen, err := nodes.Choose(t.Context(), oneSlot("n"))
		return err == nil && chosen.Lease != nil
	})
}
