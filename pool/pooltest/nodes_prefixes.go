package pooltest

import (
	"crypto/sha256"
	"reflect"
	"strconv"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

var prefixTests = []nodeTest{
	{"are remembered of the node that was chosen", testPrefixes},
	{"match as deep as they go", testDeepest},
	{"are remembered for a while", testPrefixMemory},
	{"are forgotten with the generation", testPrefixGeneration},
	{"say who holds the deepest", testHolders},
	{"are remembered of those who were sent them last", testManyHolders},
	{"draw requests to who holds them", testAffinity},
}

// promptOf is a prompt whose beginnings are shared with those of the same name; depth n has n tokens.
func promptOf(name string, depths ...int64) []selection.Prefix {
	prefixes := []selection.Prefix{}
	for _, depth := range depths {
		sum := sha256.Sum256([]byte(name + "/" + strconv.FormatInt(depth, 10)))
		prefixes = append(prefixes, selection.Prefix{Key: selection.Key(sum[:]), Bytes: 4 * depth, Tokens: depth})
	}
	return prefixes
}

// ask sends a prompt of so many tokens to one node, and gives its slot back.
func (h *nodesHarness) ask(c pool.Contender, prompt int64, prefixes []selection.Prefix) pool.Lease {
	h.Helper()
	choosing := h.choosing(c)
	choosing.Prompt, choosing.Prefixes = prompt, prefixes
	got := h.take(choosing)
	h.release(got, pool.Succeeded)
	return got
}

// wantMatched asks, and compares what was matched.
func (h *nodesHarness) wantMatched(c pool.Contender, prompt int64, prefixes []selection.Prefix, want int64) {
	h.Helper()
	if got := h.ask(c, prompt, prefixes); got.Matched != want || got.Queued != prompt-want {
		h.Fatalf("%d tokens are held and %d are not at %s, want %d and %d", got.Matched, got.Queued, h.clock.Now(), want, prompt-want)
	}
}

func (h *nodesHarness) wantHolders(prefixes []selection.Prefix, generations []string, want ...bool) {
	h.Helper()
	got, err := h.client().Holders(h.Context(), prefixes, generations)
	h.must(err)
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		h.Fatalf("%q hold the prompt at %s: %v, want %v", generations, h.clock.Now(), got, want)
	}
}

func testPrefixes(h *nodesHarness) {
	h.join("a", 9)
	h.join("b", 9)
	a, b := contender("a", 9), contender("b", 9)
	prompt := promptOf("prompt", 100, 200, 300)
	h.wantMatched(a, 300, prompt, 0)
	h.wantMatched(b, 300, prompt, 0)
	h.wantMatched(a, 300, prompt, 300)
	h.wantMatched(b, 300, prompt, 300)
	h.wantMatched(a, 300, promptOf("another", 100, 200, 300), 0)
	h.wantMatched(a, 300, nil, 0)
	// The slot is free again, and the prompt is held all the same.
	h.wantInFlight("a", 0, 0)
	// A lease that is not given back takes what the node has to read, no more.
	choosing := h.choosing(a)
	choosing.Prompt, choosing.Prefixes = 1000, promptOf("prompt", 100, 200, 300, 1000)
	if got := h.take(choosing); got.Matched != 300 || got.Queued != 700 || got.Ahead != 0 {
		h.Errorf("leased %+v, want 300 of 1000 tokens held", got)
	}
	h.wantInFlight("a", 1, 700)
	h.clock.Advance(lease + time.Millisecond)
	h.wantInFlight("a", 0, 0)
	h.wantMatched(a, 1000, choosing.Prefixes, 1000)
}

func testDeepest(h *nodesHarness) {
	h.join("n", 9)
	n := contender("n", 9)
	h.wantMatched(n, 200, promptOf("prompt", 100, 200), 0)
	// The same conversation, further on.
	h.wantMatched(n, 500, promptOf("prompt", 100, 200, 400, 500), 200)
	// One that branches off.
	h.wantMatched(n, 300, append(promptOf("prompt", 100), promptOf("branch", 300)...), 100)
	// One that skips what is known.
	h.wantMatched(n, 500, promptOf("prompt", 50, 500), 500)
	// The estimate may be less than what is held, and more.
	h.wantMatched(n, 150, promptOf("prompt", 100, 200), 150)
	h.wantMatched(n, 900, promptOf("prompt", 100, 200), 200)
	h.wantMatched(n, 0, promptOf("prompt", 100, 200), 0)
	// As many as there may be, of a length as there may be.
	var depths []int64
	for i := range selection.MaxPrefixes {
		depths = append(depths, int64(1)<<(40-selection.MaxPrefixes+1+i))
	}
	h.wantMatched(n, 1<<40, promptOf("long", depths...), 0)
	h.wantMatched(n, 1<<40, promptOf("long", depths...), 1<<40)
	h.wantMatched(n, 1<<40, promptOf("long", depths[:3]...), depths[2])
}

func testPrefixMemory(h *nodesHarness) {
	h.join("n", 9)
	n := contender("n", 9)
	h.ask(n, 200, promptOf("prompt", 100, 200))
	h.clock.Advance(pool.PrefixMemory - time.Microsecond)
	h.wantHolders(promptOf("prompt", 200), []string{"n/1"}, true)
	h.wantMatched(n, 100, promptOf("prompt", 100), 100) // and remembered anew
	h.clock.Advance(time.Microsecond)
	h.wantHolders(promptOf("prompt", 200), []string{"n/1"}, false)
	h.wantHolders(promptOf("prompt", 100), []string{"n/1"}, true)
	h.wantMatched(n, 300, promptOf("prompt", 100, 200), 100)
	h.clock.Advance(pool.PrefixMemory)
	h.wantHolders(promptOf("prompt", 100, 200), []string{"n/1"}, false)
	h.wantMatched(n, 300, promptOf("prompt", 100, 200), 0)
}

func testPrefixGeneration(h *nodesHarness) {
	h.register(spec("n", 9), report())
	prompt := promptOf("prompt", 100, 200)
	now := func() pool.Contender {
		c := contender("n", 9)
		c.Generation = h.node("n", nil).Generation
		return c
	}
	first := now()
	h.wantMatched(first, 200, prompt, 0)
	h.wantMatched(first, 200, prompt, 200)
	h.clock.Advance(time.Second)
	cold := report()
	cold.Models[0].Warm = false
	node, _ := h.beat("n", cold)
	second := contender("n", 9)
	second.Generation = node.Generation
	h.wantMatched(second, 200, prompt, 0)
	h.wantMatched(second, 200, prompt, 200)
	h.clock.Advance(time.Second)
	h.register(spec("n", 9), cold)
	h.wantNode(h.shown(spec("n", 9), cold))
	h.wantMatched(now(), 200, prompt, 0)
	h.wantHolders(prompt, []string{now().Generation, first.Generation, second.Generation, ""}, true, true, true, false)
}

func testHolders(h *nodesHarness) {
	for _, id := range []string{"a", "b", "c"} {
		h.join(id, 9)
	}
	all := []string{"a/1", "b/1", "c/1"}
	prompt := promptOf("prompt", 100, 200, 300)
	h.wantHolders(prompt, all, false, false, false)
	h.wantHolders(nil, all, false, false, false)
	h.wantHolders(prompt, nil)
	h.ask(contender("a", 9), 100, prompt[:1])
	h.ask(contender("c", 9), 100, prompt[:1])
	h.wantHolders(prompt, all, true, false, true)
	h.ask(contender("b", 9), 200, prompt[:2])
	h.wantHolders(prompt, all, false, true, false)
	h.wantHolders(prompt[:1], all, true, true, true)
	// Of those that are asked about: others may be gone for long.
	h.wantHolders(prompt, []string{"c/1", "x/1", "a/1"}, true, false, true)
	h.wantHolders(prompt[2:], all, false, false, false)
	h.ask(contender("c", 9), 300, prompt)
	h.wantHolders(prompt, all, false, false, true)
}

func testAffinity(h *nodesHarness) {
	for _, id := range []string{"a", "b", "c"} {
		h.join(id, 9)
	}
	all := []pool.Contender{contender("a", 9), contender("b", 9), contender("c", 9)}
	prompt := promptOf("prompt", 1000, 2000)
	h.ask(all[1], 2000, prompt)
	for range 5 {
		c := h.choosing(all...)
		c.Prompt, c.Prefixes = 2000, prompt
		got := h.take(c)
		if got.Node != "b" || got.Matched != 2000 {
			h.Fatalf("chosen %+v, want the one that holds the prompt", got)
		}
		h.release(got, pool.Succeeded)
	}
	// Without affinity it is worth no more than any other.
	nodes := map[string]int{}
	for range 6 {
		c := h.choosing(all...)
		c.Prompt, c.Prefixes, c.Policy = 2000, prompt, selection.Policy{Plain: true}
		got := h.take(c)
		nodes[got.Node]++
		h.release(got, pool.Succeeded)
	}
	if want := map[string]int{"a": 2, "b": 2, "c": 2}; !reflect.DeepEqual(nodes, want) {
		h.Errorf("chosen %v, want %v", nodes, want)
	}
}

func testManyHolders(h *nodesHarness) {
	h.join("n", 9)
	prompt := promptOf("p", 10)
	c := contender("n", 9)
	send := func(n int) string {
		c.Generation = "generation/" + strconv.Itoa(n)
		h.ask(c, 10, prompt)
		return c.Generation
	}
	first, second := send(0), send(1)
	for n := range pool.MaxHolders - 2 {
		send(2 + n)
	}
	h.wantHolders(prompt, []string{first, second}, true, true)
	send(0) // which is the last one now
	last := send(pool.MaxHolders)
	h.wantHolders(prompt, []string{first, second, last}, true, false, true)
}
