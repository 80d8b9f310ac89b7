package pooltest

import (
	"fmt"
	"strings"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

var turnTests = []nodeTest{
	{"follow nginx's round robin", testTurns},
	{"are kept for each model", testTurnsOfModels},
	{"are kept by those who take no part", testTurnsKept},
	{"are not told of nodes that are not registered", testTurnsUnknown},
	{"are kept of those who took part last", testTurnsOfMany},
}

// weighted is a contender with a base weight and slots without end, of which taken ones hardly matter.
func weighted(id string, weight float64) pool.Contender {
	c := contender(id, 100)
	c.Base = weight
	return c
}

// sequence lets the contenders be chosen so many times, one after the other.
func (h *nodesHarness) sequence(model string, times int, contenders ...pool.Contender) string {
	h.Helper()
	var nodes []string
	for range times {
		c := h.choosing(contenders...)
		c.Model, c.Policy = model, selection.Policy{Plain: true}
		got := h.take(c)
		nodes = append(nodes, got.Node)
		h.release(got, pool.Succeeded)
	}
	return strings.Join(nodes, " ")
}

func testTurns(h *nodesHarness) {
	contenders := []pool.Contender{weighted("a", 5), weighted("b", 1), weighted("c", 1)}
	for _, c := range contenders {
		h.join(c.Node, 100)
	}
	for range 2 {
		if got, want := h.sequence("model", 7, contenders...), "a a b a c a a"; got != want {
			h.Errorf("chosen %s, want %s", got, want)
		}
	}
	h.sequence("model", 1, contenders...)
	const s = selection.Scale
	for id, want := range map[string]int64{"a": -2 * s, "b": s, "c": s} {
		if got := h.load(id).Current; got != want {
			h.Errorf("the current weight of %s is %d, want %d", id, got, want)
		}
	}
	if node, load := h.beat("a", report()); load.Current != 0 {
		h.Errorf("a heartbeat of %s tells a current weight of %d for no model", node.ID, load.Current)
	}
}

func testTurnsOfModels(h *nodesHarness) {
	contenders := []pool.Contender{weighted("a", 1), weighted("b", 1)}
	h.join("a", 100)
	h.join("b", 100)
	for _, c := range []struct{ model, want string }{
		{"model", "a"}, {"other", "a"}, {"other", "b"}, {"model", "b"}, {"third:with/odd name", "a"}, {"model", "a"}, {"other", "a"},
	} {
		if got := h.sequence(c.model, 1, contenders...); got != c.want {
			h.Errorf("chosen %s for %s, want %s", got, c.model, c.want)
		}
	}
	for _, model := range []string{"model", "other", "third:with/odd name"} {
		loads, err := h.client().Loads(h.Context(), model, []string{"b", "a"})
		h.must(err)
		if len(loads) != 2 || loads[0].Current != selection.Scale || loads[1].Current != -selection.Scale {
			h.Errorf("the current weights of b and a for %s: %+v", model, loads)
		}
	}
	loads, err := h.client().Loads(h.Context(), "unasked", []string{"b", "a"})
	h.must(err)
	if len(loads) != 2 || loads[0].Current != 0 || loads[1].Current != 0 {
		h.Errorf("the current weights for a model that nobody asked for: %+v", loads)
	}
}

func testTurnsKept(h *nodesHarness) {
	h.join("a", 100)
	h.join("b", 100)
	h.join("c", 1)
	a, b, c := weighted("a", 100), weighted("b", 100), contender("c", 1)
	if got := h.sequence("model", 1, a, b); got != "a" {
		h.Errorf("chosen %s, want a", got)
	}
	h.takeOn("c", 1)
	before := map[string]int64{"a": h.load("a").Current, "b": h.load("b").Current, "c": h.load("c").Current}
	// b is not worth enough to be in the shortlist, and c is full.
	weak := b
	weak.Base = 10
	taken := h.take(h.choosing(a, weak, c))
	if taken.Node != "a" {
		h.Errorf("chosen %s, want a", taken.Node)
	}
	for _, id := range []string{"a", "b", "c"} {
		if got := h.load(id).Current; got != before[id] {
			h.Errorf("the current weight of %s is %d, want %d still", id, got, before[id])
		}
	}
	h.release(taken, pool.Succeeded)
	// It is b's turn still, minutes later.
	h.clock.Advance(pool.TurnMemory / 2)
	if got := h.sequence("model", 2, a, b); got != "b a" {
		h.Errorf("chosen %s, want b a", got)
	}
}

func testTurnsUnknown(h *nodesHarness) {
	h.join("a", 100)
	h.join("b", 100)
	h.sequence("model", 1, weighted("a", 1), weighted("b", 1))
	h.remove("b", "")
	loads, err := h.client().Loads(h.Context(), "model", []string{"x", "a", "b", "a"})
	h.must(err)
	if len(loads) != 4 {
		h.Fatalf("%d loads of 4", len(loads))
	}
	for i, want := range []int64{0, -selection.Scale, 0, -selection.Scale} {
		if loads[i] != (pool.NodeLoad{Current: want}) {
			h.Errorf("load %d is %+v, want the current weight %d", i, loads[i], want)
		}
	}
	none, err := h.client().Loads(h.Context(), "model", nil)
	h.must(err)
	if len(none) != 0 {
		h.Errorf("%d loads of none", len(none))
	}
}

var speedTests = []nodeTest{
	{"are averaged", testSpeedAverage},
	{"learn nothing from what is no speed", testSpeedInvalid},
	{"are kept for each model and node", testSpeedOfModels},
	{"are shown as of the last heartbeat", testSpeedShown},
}

// wantSpeed compares a node's speed as its next heartbeat shows it.
func (h *nodesHarness) wantSpeed(id, model string, want pool.Speed) {
	h.Helper()
	node, _ := h.beat(id, report())
	if got := node.Speeds[model]; got != want {
		h.Fatalf("%s has speed %+v for %s, want %+v", id, got, model, want)
	}
}

func (h *nodesHarness) measure(id, model string, measured pool.Speed) {
	h.Helper()
	c := h.choosing(contender(id, 9))
	c.Model = model
	h.releaseAs(pool.Release{Lease: h.take(c), Measured: measured})
}

// moved is an average after one more value: every operation is rounded once.
func moved(known, x float64) float64 {
	difference := x - known
	part := pool.SpeedGain * difference
	return known + part
}

func testSpeedAverage(h *nodesHarness) {
	h.join("n", 9)
	var want pool.Speed
	for i, measured := range []pool.Speed{{TTFT: 0.7, TPS: 33.3}, {TTFT: 0.1, TPS: 1e9}, {TTFT: 1.0 / 3}, {TPS: 2.0 / 3}, {TTFT: 1e-9, TPS: 1e-300}} {
		h.measure("n", "model", measured)
		if i == 0 {
			want = measured
		} else {
			if measured.TTFT > 0 {
				want.TTFT = moved(want.TTFT, measured.TTFT)
			}
			if measured.TPS > 0 {
				want.TPS = moved(want.TPS, measured.TPS)
			}
		}
		h.wantSpeed("n", "model", want)
	}
}

func testSpeedInvalid(h *nodesHarness) {
	h.join("n", 9)
	zero := 0.0
	for _, x := range []float64{0, -1, 1 / zero, -1 / zero, zero / zero} {
		h.measure("n", "model", pool.Speed{TTFT: x, TPS: x})
	}
	h.wantSpeed("n", "model", pool.Speed{})
	h.measure("n", "model", pool.Speed{TTFT: 2, TPS: 1 / zero})
	h.wantSpeed("n", "model", pool.Speed{TTFT: 2})
	h.measure("n", "model", pool.Speed{TTFT: -2, TPS: 20})
	h.wantSpeed("n", "model", pool.Speed{TTFT: 2, TPS: 20})
	for _, x := range []float64{0, -1, 1 / zero, -1 / zero, zero / zero} {
		h.measure("n", "model", pool.Speed{TTFT: x, TPS: x})
	}
	h.wantSpeed("n", "model", pool.Speed{TTFT: 2, TPS: 20})
}

func testSpeedOfModels(h *nodesHarness) {
	h.join("n", 9)
	h.join("m", 9)
	h.measure("n", "model", pool.Speed{TTFT: 1, TPS: 10})
	h.measure("n", "a:b c/d", pool.Speed{TTFT: 2, TPS: 20})
	h.measure("m", "model", pool.Speed{TTFT: 3, TPS: 30})
	h.wantSpeed("n", "model", pool.Speed{TTFT: 1, TPS: 10})
	h.wantSpeed("n", "a:b c/d", pool.Speed{TTFT: 2, TPS: 20})
	h.wantSpeed("n", "other", pool.Speed{})
	h.wantSpeed("m", "model", pool.Speed{TTFT: 3, TPS: 30})
	h.wantSpeed("m", "a:b c/d", pool.Speed{})
}

func testSpeedShown(h *nodesHarness) {
	h.join("n", 9)
	want := h.wantNode(h.shown(spec("n", 9), report()))
	h.measure("n", "model", pool.Speed{TTFT: 1, TPS: 10})
	h.wantNode(want)
	h.clock.Advance(time.Second)
	h.beat("n", report())
	want.HeartbeatAt, want.HeardAt = h.clock.Now(), h.clock.Now()
	want.Speeds = map[string]pool.Speed{"model": {TTFT: 1, TPS: 10}}
	h.wantNode(want)
	h.measure("n", "model", pool.Speed{TTFT: 2, TPS: 20})
	h.wantNode(want)
	h.clock.Advance(time.Second)
	h.register(spec("n", 9), report())
	want = h.shown(spec("n", 9), report())
	want.Speeds = map[string]pool.Speed{"model": {TTFT: moved(1, 2), TPS: moved(10, 20)}}
	h.wantNode(want)
}

// testTurnsOfMany has a fleet in which machines come and go, each under a name of its own.
func testTurnsOfMany(h *nodesHarness) {
	h.join("always", 9)
	const guests = pool.MaxTurns + 3
	name := func(n int) string { return fmt.Sprintf("guest-%d", n) }
	for n := range guests {
		h.join(name(n), 9)
		h.sequence("model", 1, weighted("always", 1), weighted(name(n), 1))
	}
	for n := range guests {
		kept := n >= guests-(pool.MaxTurns-1)
		if got := h.load(name(n)).Current; (got != 0) != kept {
			h.Errorf("the current weight of guest %d of %d is %d, want it kept: %t", n, guests, got, kept)
		}
	}
}
