package pooltest

import (
	"reflect"

	"github.com/ai-process/ktms/pool"
)

var choiceTests = []nodeTest{
	{"go to the best rank that is free", testRanks},
	{"go to who has least to read", testQueue},
	{"are those of the arithmetic", testChoices},
}

func testRanks(h *nodesHarness) {
	h.join("a", 1)
	h.join("b", 1)
	h.join("c", 1)
	a, b, c := contender("a", 1), contender("b", 1), contender("c", 1)
	a.Rank, b.Rank, c.Rank = 2, 0, 1
	for _, want := range []string{"b", "c", "a"} {
		if got := h.take(h.choosing(a, b, c)); got.Node != want {
			h.Errorf("chosen %s, want %s", got.Node, want)
		}
	}
	h.wantFull(h.choosing(a, b, c))
}

func testQueue(h *nodesHarness) {
	h.join("a", 100)
	h.join("b", 100)
	a, b := contender("a", 100), contender("b", 100)
	a.SecondsPerToken, b.SecondsPerToken = 0.001, 0.001
	long := h.choosing(a)
	long.Prompt = 100_000
	first := h.take(long)
	for range 5 {
		got := h.take(h.choosing(a, b))
		if got.Node != "b" {
			h.Errorf("chosen %s, which has a long prompt to read", got.Node)
		}
		h.release(got, pool.Succeeded)
	}
	h.begun(first)
	nodes := map[string]int{}
	for range 10 {
		got := h.take(h.choosing(a, b))
		nodes[got.Node]++
		h.release(got, pool.Succeeded)
	}
	if want := map[string]int{"a": 5, "b": 5}; !reflect.DeepEqual(nodes, want) {
		h.Errorf("chosen %v once it was read, want %v", nodes, want)
	}
}

func testChoices(h *nodesHarness) {
	for seed := range int64(sequences) {
		if err := nodesProperty(h.Context(), seed, h.clients, h.clock, h.patience); err != nil {
			h.Fatalf("%v", err)
		}
	}
}
