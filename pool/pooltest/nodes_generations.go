package pooltest

import (
	"time"

	"github.com/ai-process/ktms/pool"
)

var generationTests = []nodeTest{
	{"change when a model leaves the memory", testGenerations},
	{"are never used again", testGenerationsUnique},
}

func testGenerations(h *nodesHarness) {
	models := func(models ...pool.NodeModel) pool.NodeReport { return pool.NodeReport{Level: 100, Models: models} }
	warm := func(id string) pool.NodeModel { return pool.NodeModel{ID: id, Warm: true} }
	cold := func(id string) pool.NodeModel { return pool.NodeModel{ID: id} }
	h.register(spec("n", 9), models(warm("a"), cold("b")))
	last := h.node("n", nil).Generation
	for _, c := range []struct {
		what    string
		report  pool.NodeReport
		changes bool
	}{
		{"nothing changes", models(warm("a"), cold("b")), false},
		{"another one comes", models(warm("a"), warm("b")), false},
		{"in another order", models(warm("b"), warm("a")), false},
		{"one is loaded no more", models(warm("a"), cold("b")), true},
		{"it stays so", models(warm("a"), cold("b")), false},
		{"one that was not loaded is gone", models(warm("a")), false},
		{"the only one is gone", models(), true},
		{"there is none still", models(), false},
		{"it is back", models(warm("a")), false},
		{"another one takes its place", models(warm("b")), true},
		{"the node drains", pool.NodeReport{Draining: true, Level: 50, Models: []pool.NodeModel{warm("b")}}, false},
	} {
		h.clock.Advance(5 * time.Second)
		node, _ := h.beat("n", c.report)
		if changed := node.Generation != last; changed != c.changes {
			h.Errorf("%s: the generation goes from %q to %q", c.what, last, node.Generation)
		}
		last = node.Generation
		want := node
		h.wantNode(want)
	}
}

func testGenerationsUnique(h *nodesHarness) {
	seen := map[string]string{}
	note := func(what string) {
		h.Helper()
		node, _ := h.beat("n", report()) // which changes none
		if first, found := seen[node.Generation]; found {
			h.Errorf("%s: %q is the generation of %s", what, node.Generation, first)
		}
		seen[node.Generation] = what
	}
	empty := pool.NodeReport{Level: 100}
	h.join("n", 1)
	note("the first registration")
	h.join("n", 1)
	note("the second one at the same instant")
	h.beat("n", empty)
	note("the unloaded model")
	h.beat("n", empty)
	note("the model that was unloaded again")
	h.remove("n", "")
	h.join("n", 1)
	note("the registration after the removal")
	h.beat("n", empty)
	note("the model unloaded after the removal")
	h.clock.Advance(time.Microsecond)
	h.join("n", 1)
	note("the registration after a microsecond")
	h.join("m", 1)
	m, _ := h.beat("m", report())
	if what, found := seen[m.Generation]; found {
		h.Errorf("%q is the generation of two nodes and %s", m.Generation, what)
	}
}
