package pooltest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ai-process/ktms/pool"
)

var registryTests = []nodeTest{
	{"are shown as they registered", testRegister},
	{"are listed in the order of their ids", testOrder},
	{"replace what they registered with", testRegisterAnew},
	{"begin anew at another endpoint", testMoved},
	{"are shown as of their last heartbeat", testBeat},
	{"have to register first", testUnknown},
	{"are removed with all that belongs to them", testRemove},
	{"are removed by their own key alone", testRemoveByKey},
	{"are drained by an administrator", testDrain},
	{"have their tokens sealed anew", testReseal},
	{"are forgotten when nobody hears of them", testRetention},
	{"are not asked for when the context has ended", testNodesContext},
}

// everything is a node with something in each field.
func everything() (pool.NodeSpec, pool.NodeReport) {
	active, waiting := int64(0), int64(3)
	celsius, utilization, total, free := 61.5, 0.0, int64(80<<30), int64(0)
	return pool.NodeSpec{
			ID: "gpu-1", Name: "Under the desk", Engine: "ollama", Endpoint: "https://gpu.example:8443/base",
			Token: []byte{0, 1, 255, '"'}, KeyID: "key", AllowedModels: []string{"a", "b:latest"}, BaseWeight: 250, MaxConcurrent: 8,
			Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, AgentVersion: "1.2.3",
		}, pool.NodeReport{
			Draining: true, Trouble: "the engine does not answer", Level: 0, Active: &active, Waiting: &waiting,
			Models: []pool.NodeModel{{ID: "a", Warm: true, Context: 131072, Capabilities: []string{"tools", "vision"}}, {ID: "b:latest"}},
			GPUs:   []pool.NodeGPU{{Name: "one", Celsius: &celsius, Utilization: &utilization, MemoryTotal: &total, MemoryFree: &free}, {}},
		}
}

func testRegister(h *nodesHarness) {
	h.wantNodes()
	s, r := everything()
	h.register(s, r)
	h.wantNode(h.shown(s, r))
	h.eventually(func(fleet pool.Fleet) error {
		if !fleet.Now.Equal(h.clock.Now()) {
			return fmt.Errorf("is of %s, want %s", fleet.Now, h.clock.Now())
		}
		return nil
	})
	h.wantLoad(s.ID, pool.NodeLoad{})
	least := spec("least", 1)
	h.register(least, pool.NodeReport{})
	h.wantNode(h.shown(least, pool.NodeReport{}))
}

func testOrder(h *nodesHarness) {
	for _, id := range []string{"b", "a-1", "c", "a", "B", "a1"} {
		h.join(id, 1)
	}
	h.wantNodes("B", "a", "a-1", "a1", "b", "c")
}

func testRegisterAnew(h *nodesHarness) {
	s, r := everything()
	h.register(s, r)
	first := h.wantNode(h.shown(s, r))
	h.must(h.client().Drain(h.Context(), s.ID, true))
	h.takeOn(s.ID, 9)
	failed := h.takeOn(s.ID, 9)
	h.releaseAs(pool.Release{Lease: failed, Outcome: pool.Failed, Measured: pool.Speed{TTFT: 0.5, TPS: 40}})
	h.clock.Advance(10 * time.Second)
	s2, r2 := spec(s.ID, 3), report()
	s2.Endpoint = s.Endpoint
	h.register(s2, r2)
	want := h.shown(s2, r2)
	want.Counted, want.Drained, want.Speeds = 1, true, map[string]pool.Speed{"model": {TTFT: 0.5, TPS: 40}}
	if second := h.wantNode(want); second.Generation == first.Generation {
		h.Errorf("the generation is %q still", second.Generation)
	}
	h.wantLoad(s.ID, pool.NodeLoad{InFlight: 1, Queued: 10, Failures: 1})
	h.wantNodes(s.ID)
	// An open circuit stays open.
	for range pool.BreakAfter - 1 {
		h.release(h.takeOn(s.ID, 9), pool.Failed)
	}
	opened := h.clock.Now()
	h.clock.Advance(time.Second)
	h.register(s2, r2)
	want = h.shown(s2, r2)
	want.Counted, want.Drained, want.Speeds = 1, true, map[string]pool.Speed{"model": {TTFT: 0.5, TPS: 40}}
	want.OpenedAt = opened
	h.wantNode(want)
	h.wantFull(h.choosing(contender(s.ID, 9)))
}

func testMoved(h *nodesHarness) {
	h.join("n", 9)
	h.takeOn("n", 9)
	early := h.takeOn("n", 9)
	for range 3 {
		h.releaseAs(pool.Release{Lease: h.takeOn("n", 9), Outcome: pool.Failed, Measured: pool.Speed{TTFT: 1, TPS: 50}})
	}
	other := spec("n", 9)
	other.Endpoint = "https://elsewhere.example"
	h.register(other, report())
	want := h.shown(other, report())
	want.Counted = 2
	h.wantNode(want)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20})
	// Calls to the former endpoint say nothing of this one.
	h.release(early, pool.Failed)
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
	h.release(h.takeOn("n", 9), pool.Failed)
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10, Failures: 1})

	// An open circuit closes, even while one request tries it.
	h.breakNode("n", 9)
	h.clock.Advance(pool.BreakCooldown)
	trial := h.takeOn("n", 9)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20, Failures: pool.BreakAfter, Probing: true})
	h.register(spec("n", 9), report())
	want = h.shown(spec("n", 9), report())
	want.Counted = 2
	h.wantNode(want)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20})
	if again := h.takeOn("n", 9); again.Trial || again.Turn == trial.Turn {
		h.Errorf("taken at a closed circuit: %+v", again)
	}
	h.release(trial, pool.Failed)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20})
}

// breakNode lets requests fail until the node's circuit is open.
func (h *nodesHarness) breakNode(id string, slots int64) {
	h.Helper()
	for range pool.BreakAfter - h.load(id).Failures {
		h.release(h.takeOn(id, slots), pool.Failed)
	}
	h.wantFull(h.choosing(contender(id, slots)))
}

func testBeat(h *nodesHarness) {
	h.join("n", 9)
	want := h.wantNode(h.shown(spec("n", 9), report()))
	h.clock.Advance(5 * time.Second)
	_, r := everything()
	r.Level, r.Models = 100, report().Models
	h.takeOn("n", 9)
	kept := h.takeOn("n", 9)
	h.begun(kept)
	node, load := h.beat("n", r)
	want.NodeReport, want.Counted = r, 2
	want.HeartbeatAt, want.HeardAt = h.clock.Now(), h.clock.Now()
	if err := sameNode(node, want); err != nil {
		h.Errorf("the heartbeat says: %v", err)
	}
	if load.Current = 0; load != (pool.NodeLoad{InFlight: 2, Queued: 10}) {
		h.Errorf("the heartbeat says %+v of the leases", load)
	}
	h.wantNode(want)
	// The next one counts what is there by then, and forgets what it is not told.
	h.release(kept, pool.Unjudged)
	h.clock.Advance(5 * time.Second)
	h.beat("n", report())
	want.NodeReport, want.Counted, want.HeartbeatAt, want.HeardAt = report(), 1, h.clock.Now(), h.clock.Now()
	h.wantNode(want)
	// Ended leases are not counted.
	h.clock.Advance(lease)
	h.beat("n", report())
	want.Counted, want.HeartbeatAt, want.HeardAt = 0, h.clock.Now(), h.clock.Now()
	h.wantNode(want)
}

func testUnknown(h *nodesHarness) {
	h.join("other", 1)
	_, _, err := h.client().Beat(h.Context(), "n", report())
	h.wantUnknown("a heartbeat", err)
	h.wantUnknown("a drain", h.client().Drain(h.Context(), "n", true))
	if h.remove("n", "") {
		h.Errorf("a node that there was not was removed")
	}
	if done, err := h.client().Reseal(h.Context(), "n", nil, []byte("token")); done || err != nil {
		h.Errorf("a token of a node that there is not was sealed anew: %t, %v", done, err)
	}
	h.wantLoad("n", pool.NodeLoad{})
	h.wantNodes("other")
	odd := contender("n", 3)
	odd.InFlight, odd.Queued = 7, 7 // which are not read
	if chosen := h.wantFull(h.choosing(odd)); chosen.Occupied != 0 {
		h.Errorf("%d slots are taken of a node that there is not", chosen.Occupied)
	}
	if got := h.take(h.choosing(contender("n", 9), contender("other", 1))); got.Node != "other" {
		h.Errorf("chosen %s, want the one that is registered", got.Node)
	}
}

func testRemove(h *nodesHarness) {
	h.register(spec("n", 9), paced(50))
	h.join("other", 1)
	running := h.takeOn("n", 9)
	h.takeOn("n", 9) // which nobody says anything of any more
	h.releaseAs(pool.Release{Lease: h.takeOn("n", 9), Outcome: pool.Unjudged, Idle: time.Hour, Measured: pool.Speed{TTFT: 1, TPS: 1}})
	h.breakNode("n", 9)
	h.must(h.client().Drain(h.Context(), "n", true))
	if !h.remove("n", "") {
		h.Fatalf("nothing was removed")
	}
	h.wantNodes("other")
	h.wantLoad("n", pool.NodeLoad{})
	_, _, err := h.client().Beat(h.Context(), "n", report())
	h.wantUnknown("a heartbeat", err)
	// Calls go on, and leave nothing behind.
	h.begun(running)
	h.renew(lease, []pool.NodeRenewal{{Lease: running, Restore: true}}, running.ID)
	h.releaseAs(pool.Release{Lease: running, Outcome: pool.Failed, Idle: time.Hour, Measured: pool.Speed{TTFT: 1, TPS: 1}})
	h.wantNodes("other")
	h.wantLoad("n", pool.NodeLoad{})
	if h.remove("n", "") {
		h.Errorf("it was removed twice")
	}
	h.clock.Advance(time.Second)
	h.register(spec("n", 9), paced(50))
	h.wantNode(h.shown(spec("n", 9), paced(50)))
	h.wantLoad("n", pool.NodeLoad{})
	h.takeOn("n", 9)
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
}

func testRemoveByKey(h *nodesHarness) {
	h.join("n", 1)
	if h.remove("n", "another-key") {
		h.Errorf("it was removed by a key that is not its own")
	}
	h.wantNodes("n")
	s := spec("n", 1)
	s.KeyID = "new-key"
	h.register(s, report())
	if h.remove("n", "key-of-n") {
		h.Errorf("it was removed by the key that it registered with before")
	}
	h.wantNodes("n")
	if !h.remove("n", "new-key") {
		h.Errorf("it was not removed by its key")
	}
	h.wantNodes()
}

func testDrain(h *nodesHarness) {
	h.join("n", 1)
	want := h.shown(spec("n", 1), report())
	drain := func(drained bool) {
		h.Helper()
		h.must(h.client().Drain(h.Context(), "n", drained))
		want.Drained = drained
		h.wantNode(want)
	}
	drain(true)
	drain(true)
	h.clock.Advance(time.Second)
	h.beat("n", report())
	want.HeartbeatAt, want.HeardAt = h.clock.Now(), h.clock.Now()
	h.wantNode(want)
	drain(false)
	drain(false)
	drain(true)
	drain(false)
}

func testReseal(h *nodesHarness) {
	s := spec("n", 1)
	s.Token = []byte("sealed with the first key")
	h.register(s, report())
	want := h.wantNode(h.shown(s, report()))
	reseal := func(former, token []byte, done bool) {
		h.Helper()
		got, err := h.client().Reseal(h.Context(), "n", former, token)
		h.must(err)
		if got != done {
			h.Fatalf("%q for %q: %t, want %t", token, former, got, done)
		}
		if done {
			want.Token = token
		}
		h.wantNode(want)
	}
	reseal([]byte("another one"), []byte("lost"), false)
	reseal(nil, []byte("lost"), false)
	reseal(s.Token, []byte{0xff, 0, 1}, true)
	reseal(s.Token, []byte("lost"), false)
	h.clock.Advance(time.Second)
	h.beat("n", report())
	want.HeartbeatAt, want.HeardAt = h.clock.Now(), h.clock.Now()
	h.wantNode(want)
	reseal([]byte{0xff, 0, 1}, []byte("third"), true)
}

func testRetention(h *nodesHarness) {
	const retention = 24 * time.Hour
	h.join("old", 9)
	h.breakNode("old", 9)
	h.clock.Advance(time.Hour)
	h.join("beats", 1)
	h.clock.Advance(retention - time.Hour - time.Microsecond)
	h.wantNodes("beats", "old")
	h.beat("beats", report())
	h.clock.Advance(time.Microsecond)
	h.wantNodes("beats")
	_, _, err := h.client().Beat(h.Context(), "old", report())
	h.wantUnknown("a heartbeat", err)
	h.wantLoad("old", pool.NodeLoad{})
	h.wantFull(h.choosing(contender("old", 9)))
	if h.remove("old", "") {
		h.Errorf("what was forgotten was removed")
	}
	h.join("old", 9)
	h.wantNode(h.shown(spec("old", 9), report()))
	h.wantLoad("old", pool.NodeLoad{})
	h.takeOn("old", 9)
	h.clock.Advance(retention - 2*time.Microsecond)
	h.wantNodes("beats", "old")
	h.clock.Advance(time.Microsecond)
	h.wantNodes("old")
	h.clock.Advance(time.Microsecond)
	h.wantNodes()
}

func testNodesContext(h *nodesHarness) {
	h.join("n", 9)
	running := h.takeOn("n", 9)
	ended, cancel := context.WithCancel(h.Context())
	cancel()
	n := h.client()
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Register", func() error { return n.Register(ended, spec("m", 1), report()) }},
		{"Beat", func() error { _, _, err := n.Beat(ended, "n", pool.NodeReport{}); return err }},
		{"Remove", func() error { _, err := n.Remove(ended, "n", ""); return err }},
		{"Drain", func() error { return n.Drain(ended, "n", true) }},
		{"Reseal", func() error { _, err := n.Reseal(ended, "n", nil, []byte("token")); return err }},
		{"Fleet", func() error { _, err := n.Fleet(ended); return err }},
		{"Loads", func() error { _, err := n.Loads(ended, "model", []string{"n"}); return err }},
		{"Holders", func() error { _, err := n.Holders(ended, nil, []string{"n/1"}); return err }},
		{"Choose", func() error { _, err := n.Choose(ended, h.choosing(contender("n", 9))); return err }},
		{"Begun", func() error { return n.Begun(ended, running) }},
		{"Renew", func() error { _, err := n.Renew(ended, []pool.NodeRenewal{{Lease: running}}, time.Hour); return err }},
		{"Release", func() error { return n.Release(ended, pool.Release{Lease: running, Outcome: pool.Failed}) }},
	} {
		if err := c.call(); !errors.Is(err, context.Canceled) {
			h.Errorf("%s: %v, want %v", c.name, err, context.Canceled)
		}
	}
	h.wantNode(h.shown(spec("n", 9), report()))
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
	h.clock.Advance(lease + time.Millisecond)
	h.wantLoad("n", pool.NodeLoad{})
}
