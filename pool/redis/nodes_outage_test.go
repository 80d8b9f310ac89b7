package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/selection"
)

// ttl is how long nodes count as there without a heartbeat.
const ttl = 15 * time.Second

// field is a server of the test's own, and a gateway on it whose pool's clock and rests the test moves.
type field struct {
	*testing.T
	*Nodes
	server       *pooltest.RedisServer
	clock, rests *pooltest.Clock
}

func newField(t *testing.T, settings ...string) *field {
	t.Helper()
	f := &field{T: t, server: pooltest.StartRedis(t, settings...), clock: pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))}
	f.rests = pooltest.NewClock(time.Unix(0, 0))
	f.Nodes = f.gateway()
	return f
}

// gateway is one more client of the same pool.
func (f *field) gateway() *Nodes {
	f.Helper()
	client := open(f.T, Options{Addr: f.server.Addr, Timeout: hangs, Now: f.clock.Now})
	client.guard = newGuard(f.rests.Now)
	return client.Nodes(NodesOptions{})
}

func (f *field) join(ids ...string) {
	f.Helper()
	for _, id := range ids {
		spec := pool.NodeSpec{ID: id, Engine: "vllm", Endpoint: "https://" + id + ".example", KeyID: "key-" + id, MaxConcurrent: 4}
		if err := f.Register(f.Context(), spec, healthy()); err != nil {
			f.Fatal(err)
		}
	}
}

func healthy() pool.NodeReport {
	return pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "m", Warm: true}}}
}

// states are the nodes of a gateway's fleet with how they are.
func (f *field) states(n *Nodes) map[string]selection.Health {
	f.Helper()
	var fleet pool.Fleet
	eventually(f, "there is a fleet", func() (there bool) {
		f.rests.Advance(rest)
		var err error
		fleet, err = n.Fleet(f.Context())
		if err != nil && !errors.Is(err, pool.ErrUnavailable) {
			f.Fatal(err)
		}
		return err == nil
	})
	states := map[string]selection.Health{}
	for i := range fleet.Nodes {
		states[fleet.Nodes[i].ID], _ = fleet.Nodes[i].Health(fleet.Now, ttl)
	}
	return states
}

// want compares how the nodes of a gateway's fleet are.
func (f *field) want(n *Nodes, when string, want map[string]selection.Health) {
	f.Helper()
	got := f.states(n)
	if len(got) != len(want) {
		f.Fatalf("%s: nodes %v, want %v", when, got, want)
	}
	for id, health := range want {
		if got[id] != health {
			f.Fatalf("%s: nodes %v, want %v", when, got, want)
		}
	}
}

// loseHeartbeats lets so many heartbeats fail. After restAfter of them Redis is left alone.
func (f *field) loseHeartbeats(id string, times int) {
	f.Helper()
	for range times {
		if _, _, err := f.Beat(f.Context(), id, healthy()); !errors.Is(err, pool.ErrUnavailable) {
			f.Fatalf("%v, want that Redis is unavailable", err)
		}
	}
}

// TestHeartbeatsLostInAnOutage has a server that hangs for longer than nodes may be silent.
func TestHeartbeatsLostInAnOutage(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("dead")
	f.clock.Advance(outageReach + time.Second)
	f.join("alive")
	f.want(f.Nodes, "before", map[string]selection.Health{"alive": selection.Healthy, "dead": selection.Offline})

	f.server.Pause(t)
	f.loseHeartbeats("alive", restAfter)
	if _, err := f.Fleet(t.Context()); !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("%v, want no fleet while Redis is left alone", err)
	}
	f.clock.Advance(time.Minute)
	f.server.Resume(t)
	states := map[string]selection.Health{"alive": selection.Healthy, "dead": selection.Offline}
	f.want(f.Nodes, "after", states)
	f.clock.Advance(ttl)
	f.want(f.Nodes, "as long as after a heartbeat", states)
	f.clock.Advance(time.Microsecond)
	states["alive"] = selection.Offline
	f.want(f.Nodes, "then no more", states)
}

// TestOutageAfterOutage has two with no heartbeat between them.
func TestOutageAfterOutage(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	f.states(f.Nodes)
	for range 2 {
		f.server.Pause(t)
		f.loseHeartbeats("n", 1)
		f.clock.Advance(time.Minute)
		f.server.Resume(t)
		f.want(f.Nodes, "after an outage", map[string]selection.Health{"n": selection.Healthy})
		f.clock.Advance(ttl)
	}
}

// TestDeadThroughBlips has a node that is gone while calls fail now and then.
func TestDeadThroughBlips(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("dead", "alive")
	for range 4 {
		f.clock.Advance(10 * time.Second)
		eventually(t, "a heartbeat is taken", func() bool {
			f.rests.Advance(rest)
			_, _, err := f.Beat(t.Context(), "alive", healthy())
			return err == nil
		})
		f.server.Pause(t)
		f.loseHeartbeats("alive", 1)
		f.clock.Advance(time.Second)
		f.server.Resume(t)
		f.states(f.Nodes)
	}
	f.want(f.Nodes, "after the last", map[string]selection.Health{"alive": selection.Healthy, "dead": selection.Offline})
}

// TestEmptyAfterAnOutage has a server that is killed and comes back without what it knew.
func TestEmptyAfterAnOutage(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("back", "quiet", "removed", "by-another")
	f.clock.Advance(outageReach + time.Second)
	for _, id := range []string{"back", "quiet", "by-another"} { // the other is known, and was not heard of lately
		if _, _, err := f.Beat(t.Context(), id, healthy()); err != nil {
			t.Fatal(err)
		}
	}
	another := f.gateway()
	all := map[string]selection.Health{
		"back": selection.Healthy, "quiet": selection.Healthy, "by-another": selection.Healthy, "removed": selection.Offline,
	}
	f.want(f.Nodes, "before", all)
	f.want(another, "before, elsewhere", all)

	f.server.Stop()
	f.loseHeartbeats("back", restAfter)
	f.clock.Advance(time.Minute)
	f.server.Start(t)
	f.want(f.Nodes, "after", all)
	f.want(another, "after, to one who has not called meanwhile", all)

	if _, _, err := f.Beat(t.Context(), "back", healthy()); !errors.Is(err, pool.ErrUnknownNode) {
		t.Errorf("%v, want that the node has to register", err)
	}
	f.slotsOfTheLost("quiet")
	f.join("back")
	for id, n := range map[string]*Nodes{"removed": f.Nodes, "by-another": another} {
		if was, err := n.Remove(t.Context(), id, "key-of-nobody"); err != nil || was {
			t.Errorf("removed with another key: %v, %v", was, err)
		}
		if was, err := n.Remove(t.Context(), id, "key-"+id); err != nil || !was {
			t.Errorf("%v, %v; want that %s is removed", was, err, id)
		}
	}
	left := map[string]selection.Health{"back": selection.Healthy, "quiet": selection.Healthy}
	eventually(t, "both know what is removed", func() bool { return len(f.states(f.Nodes)) == 2 && len(f.states(another)) == 2 })
	f.want(f.Nodes, "later", left)
	f.clock.Advance(outageReach - settling - time.Microsecond)
	left["back"], left["quiet"] = selection.Offline, selection.Offline // nobody has sent heartbeats for half a minute
	f.want(f.Nodes, "at last", left)
	f.clock.Advance(time.Microsecond)
	delete(left, "quiet")
	f.want(f.Nodes, "afterwards", left)
}

// slotsOfTheLost takes and gives back a slot of a node that Redis does not know.
func (f *field) slotsOfTheLost(id string) {
	f.Helper()
	choosing := pool.Choosing{
		ID: "lease-" + pool.ID(id), TTL: time.Minute, Model: "m", Prompt: 100, Policy: selection.DefaultPolicy(),
		Contenders: []pool.Contender{{Candidate: selection.Candidate{Node: id, Base: 100, Perf: 1, Max: 1, Slots: 1}, Generation: id}},
	}
	// The calls that run on it have to be known first.
	f.clock.Advance(settling - time.Microsecond)
	if early, err := f.Choose(f.Context(), choosing); err != nil || early.Lease != nil || early.Occupied != 1 {
		f.Fatalf("chosen %+v, %v; want nobody as long as leases may be missing", early, err)
	}
	f.clock.Advance(time.Microsecond)
	chosen, err := f.Choose(f.Context(), choosing)
	if err != nil || chosen.Lease == nil {
		f.Fatalf("chosen %+v, %v; want a slot of a node that is kept", chosen, err)
	}
	choosing.ID += "-2"
	if full, err := f.Choose(f.Context(), choosing); err != nil || full.Lease != nil || full.Occupied != 1 {
		f.Fatalf("chosen %+v, %v; want that the slot is taken", full, err)
	}
	if err := f.Release(f.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Succeeded}); err != nil {
		f.Fatal(err)
	}
	// A call that was running all the while goes on.
	running := pool.Lease{ID: "running-" + pool.ID(id), Node: id, Model: "m"}
	if gone, err := f.Renew(f.Context(), []pool.NodeRenewal{{Lease: running, Restore: true}}, time.Minute); err != nil || len(gone) > 0 {
		f.Fatalf("%v are gone, %v", gone, err)
	}
	choosing.ID += "-3"
	if full, err := f.Choose(f.Context(), choosing); err != nil || full.Lease != nil {
		f.Fatalf("chosen %+v, %v; want that the slot is taken", full, err)
	}
	if err := f.Release(f.Context(), pool.Release{Lease: running}); err != nil {
		f.Fatal(err)
	}
}

// TestFlushed loses everything while nobody calls.
func TestFlushed(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	f.want(f.Nodes, "before", map[string]selection.Health{"n": selection.Healthy})
	tell(t, f.server.Addr, "FLUSHALL")
	eventually(t, "a slot of a node that is lost is to be had", func() bool {
		chosen, err := f.Choose(t.Context(), oneSlot("n"))
		if err != nil {
			t.Fatal(err)
		}
		f.want(f.Nodes, "flushed", map[string]selection.Health{"n": selection.Healthy})
		f.clock.Advance(settling / 4)
		return chosen.Lease != nil
	})
	f.join("n")
	// The lease of before the registration is counted.
	if _, load, err := f.Beat(t.Context(), "n", healthy()); err != nil || load.InFlight != 1 {
		t.Errorf("%+v, %v; want the lease that was taken", load, err)
	}
	f.clock.Advance(outageReach)
	f.want(f.Nodes, "registered anew", map[string]selection.Health{"n": selection.Offline})
}
