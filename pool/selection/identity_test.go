package selection_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

// plainNode and plain are the spec's selector, written out from its text alone.
type plainNode struct {
	id                         string
	base, inFlight, active     int64
	maximum, context           int64
	tps, ttft                  float64
	healthy, suspect, hot, has bool
	current                    int64
}

func plain(nodes []*plainNode, tokens int64) *plainNode {
	var tps, ttft []float64
	for _, n := range nodes {
		if n.has && n.tps > 0 {
			tps = append(tps, n.tps)
		}
		if n.has && n.ttft > 0 {
			ttft = append(ttft, n.ttft)
		}
	}
	middle := func(values []float64) float64 {
		sort.Float64s(values)
		if len(values) == 0 {
			return 0
		}
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	clamped := func(a, b float64) float64 {
		if a == 0 || b == 0 {
			return 1
		}
		return math.Max(0.1, math.Min(4, a/b))
	}
	keep := func(from []*plainNode, test func(*plainNode) bool) (kept []*plainNode) {
		for _, n := range from {
			if test(n) {
				kept = append(kept, n)
			}
		}
		return kept
	}
	occupied := func(n *plainNode) int64 { return max(n.inFlight, n.active) }
	eligible := keep(nodes, func(n *plainNode) bool {
		return n.has && (n.healthy || n.suspect) && occupied(n) < n.maximum && tokens <= n.context
	})
	if healthy := keep(eligible, func(n *plainNode) bool { return n.healthy }); len(healthy) > 0 {
		eligible = healthy
	}
	if warm := keep(eligible, func(n *plainNode) bool { return n.hot }); len(warm) > 0 {
		eligible = warm
	}
	var winner *plainNode
	total := int64(0)
	for _, n := range eligible {
		u := float64(occupied(n)) / float64(n.maximum)
		perf := float64(0.7*clamped(n.tps, middle(tps))) + float64(0.3*clamped(middle(ttft), n.ttft))
		w := int64(float64(n.base) * perf * ((1 - u) * (1 - u)) * 1e8)
		if w <= 0 {
			w = 1
		}
		n.current += w
		total += w
		if winner == nil || n.current > winner.current {
			winner = n
		}
	}
	if winner != nil {
		winner.current -= total
	}
	return winner
}

// TestPlainIsTheSpec: without prediction, affinity and shortlist, and with the spec's slot rule, every choice and every
// current weight is that of plain smooth weighted round robin.
func TestPlainIsTheSpec(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		nodes := make([]*plainNode, 1+random.IntN(20))
		for i := range nodes {
			nodes[i] = &plainNode{
				id: fmt.Sprintf("node-%02d", i), base: 1 + random.Int64N(400), maximum: 1 + random.Int64N(40),
				context: 1000 * (1 + random.Int64N(100)), has: random.IntN(10) > 0, hot: random.IntN(5) > 0,
			}
		}
		for step := range 200 {
			for _, n := range nodes {
				n.stir(random)
			}
			tokens := random.Int64N(60_000)
			got, currents := choose(nodes, tokens)
			want := plain(nodes, tokens)
			if want == nil && got == "" {
				continue
			}
			if want == nil || got != want.id {
				t.Fatalf("seed %d, step %d: chose %q, want %+v", seed, step, got, want)
			}
			for _, n := range nodes {
				if current, candidate := currents[n.id]; candidate && current != n.current {
					t.Fatalf("seed %d, step %d: current weight of %s is %d, want %d", seed, step, n.id, current, n.current)
				}
			}
			want.inFlight++
		}
	}
}

// stir lets time pass on a node.
func (n *plainNode) stir(random *rand.Rand) {
	if n.inFlight > 0 && random.IntN(3) == 0 {
		n.inFlight--
	}
	switch random.IntN(20) {
	case 0:
		n.active = random.Int64N(n.maximum + 1)
	case 1:
		n.tps = random.Float64() * 100
	case 2:
		n.ttft = random.Float64() * 5
	case 3:
		n.healthy, n.suspect = random.IntN(4) > 0, random.IntN(2) > 0
	}
}

// choose asks the package under test.
func choose(nodes []*plainNode, tokens int64) (id string, currents map[string]int64) {
	views := make([]selection.Node, 0, len(nodes))
	byID := map[string]*plainNode{}
	for _, n := range nodes {
		byID[n.id] = n
		v := selection.Node{
			ID: n.id, BaseWeight: n.base, MaxConcurrency: n.maximum, Level: selection.FullLevel,
			// The greater of the two, as the spec has it.
			External: max(0, n.active-n.inFlight),
		}
		switch {
		case n.healthy:
			v.Health = selection.Healthy
		case n.suspect:
			v.Health = selection.Suspect
		}
		if n.has {
			// What only the design looks at is there, and changes nothing.
			v.Models = []selection.Model{{
				ID: "m", Warm: n.hot, Context: n.context, TokensPerSecond: n.tps, TTFTSeconds: n.ttft, SecondsPerToken: 0.01,
			}}
		}
		views = append(views, v)
	}
	candidates, _ := selection.Prepare(views, selection.Query{Model: "m", PromptTokens: tokens})
	for i := range candidates {
		c := &candidates[i]
		n := byID[c.Node]
		c.InFlight, c.Current, c.Queued, c.Matched = n.inFlight, n.current, 100*int64(i), tokens/int64(i+1)
	}
	choice := selection.Choose(candidates, tokens, selection.Policy{Plain: true, Affinity: selection.DefaultAffinity})
	currents = map[string]int64{}
	for i, w := range choice.Weighed {
		currents[candidates[i].Node] = w.Current
	}
	if choice.Chosen >= 0 {
		id = candidates[choice.Chosen].Node
	}
	return id, currents
}
