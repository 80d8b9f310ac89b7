package selection_test

import (
	"slices"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

func node(id string, change func(*selection.Node)) selection.Node {
	n := selection.Node{
		ID: id, Health: selection.Healthy, Models: []selection.Model{{ID: "m", Warm: true, Context: 8000}},
		BaseWeight: 100, MaxConcurrency: 4, Level: selection.FullLevel,
	}
	if change != nil {
		change(&n)
	}
	return n
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	query := selection.Query{Model: "m", PromptTokens: 3000, MaxOutputTokens: 1000, Tried: []string{"tried"}}
	for name, test := range map[string]struct {
		node selection.Node
		want selection.Verdict
	}{
		"fits":                     {node("n", nil), selection.Eligible},
		"other model":              {node("n", func(n *selection.Node) { n.Models[0].ID = "o" }), selection.NoModel},
		"key allows others":        {node("n", func(n *selection.Node) { n.Allowed = []string{"o"} }), selection.NotAllowed},
		"key allows it":            {node("n", func(n *selection.Node) { n.Allowed = []string{"o", "m"} }), selection.Eligible},
		"offline":                  {node("n", func(n *selection.Node) { n.Health = selection.Offline }), selection.IsOffline},
		"unheard-of state":         {node("n", func(n *selection.Node) { n.Health = 99 }), selection.IsOffline},
		"draining":                 {node("n", func(n *selection.Node) { n.Health = selection.Draining }), selection.IsDraining},
		"broken":                   {node("n", func(n *selection.Node) { n.Health = selection.Broken }), selection.IsBroken},
		"on trial":                 {node("n", func(n *selection.Node) { n.Health = selection.Trial }), selection.Eligible},
		"suspect":                  {node("n", func(n *selection.Node) { n.Health = selection.Suspect }), selection.Eligible},
		"has failed":               {node("tried", nil), selection.WasTried},
		"context just long enough": {node("n", func(n *selection.Node) { n.Models[0].Context = 4000 }), selection.Eligible},
		"context too short":        {node("n", func(n *selection.Node) { n.Models[0].Context = 3999 }), selection.TooLong},
		"context unknown":          {node("n", func(n *selection.Node) { n.Models[0].Context = 0 }), selection.Eligible},
		"paused":                   {node("n", func(n *selection.Node) { n.Level = 0 }), selection.Paused},
		"a little open":            {node("n", func(n *selection.Node) { n.Level = 1 }), selection.Eligible},
	} {
		candidates, verdicts := selection.Prepare([]selection.Node{test.node}, query)
		if verdicts[0] != test.want || len(candidates) != map[bool]int{true: 1}[test.want == selection.Eligible] {
			t.Errorf("%s: %s and %d candidates, want: %s", name, verdicts[0], len(candidates), test.want)
		}
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	nodes := []selection.Node{
		node("c", func(n *selection.Node) {
			n.Models[0].SecondsPerToken, n.Models[0].TokensPerSecond, n.Models[0].TTFTSeconds = 0.003, 20, 4
		}),
		node("a", func(n *selection.Node) { n.BaseWeight, n.MaxConcurrency, n.Level, n.External = 0, 0, 50, 1 }),
		// Counts for the medians although it is gone.
		node("b", func(n *selection.Node) {
			n.Health, n.Models[0].SecondsPerToken, n.Models[0].TokensPerSecond, n.Models[0].TTFTSeconds = selection.Offline, 0.001, 40, 2
		}),
	}
	got, _ := selection.Prepare(nodes, selection.Query{Model: "m"})
	want := []selection.Candidate{
		{Node: "a", Base: 100, Perf: 1, Max: 1, Slots: 1, External: 1, SecondsPerToken: 0.002},
		{Node: "c", Base: 100, Perf: float64(0.7*(20.0/30)) + float64(0.3*(3.0/4)), Max: 4, Slots: 4, SecondsPerToken: 0.003},
	}
	if !slices.Equal(got, want) {
		t.Errorf("candidates %+v, want %+v", got, want)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]int64{
		{4, 100, 4}, {4, 50, 2}, {4, 51, 3}, {1, 50, 1}, {1, 1, 1}, {4, 0, 0}, {4, -5, 0}, {4, 300, 4}, {0, 100, 0}, {3, 33, 1}, {3, 34, 2},
	} {
		if got := selection.Slots(test[0], test[1]); got != test[2] {
			t.Errorf("%d slots at %d %%: %d, want %d", test[0], test[1], got, test[2])
		}
	}
}

// TestSlotRule: a slot is free as soon as its lease ends, and load of others counts.
func TestSlotRule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		active, counted, leases int64
		free                    bool
	}{
		"all ours, and since ended":        {4, 4, 1, true},
		"all ours, still there":            {4, 4, 4, false},
		"others have some":                 {3, 1, 1, true},
		"others have some, and we grew":    {3, 1, 2, false},
		"the engine has not seen ours yet": {0, 3, 3, true},
	} {
		c := selection.Candidate{Max: 4, Slots: 4, InFlight: test.leases, External: selection.External(test.active, test.counted)}
		if c.Free() != test.free {
			t.Errorf("%s: free is %v, want %v", name, c.Free(), test.free)
		}
	}
}

func TestNarrow(t *testing.T) {
	t.Parallel()
	fleet := func(n int) []selection.Candidate {
		candidates := make([]selection.Candidate, n)
		for i := range candidates {
			candidates[i] = selection.Candidate{Node: string(rune('A' + i)), Base: float64(1 + i%90), Perf: 1, Rank: map[bool]int{true: 2}[i > 90]}
		}
		return candidates
	}
	small := fleet(selection.NarrowFrom)
	if first, rest := selection.Narrow(small, nil); len(first) != len(small) || rest != nil {
		t.Errorf("a small fleet was divided into %d and %d", len(first), len(rest))
	}
	large := fleet(100)
	holds := make([]bool, len(large))
	holds[0], holds[99] = true, true
	first, rest := selection.Narrow(large, holds)
	if len(first) != selection.NarrowTo+2 || len(first)+len(rest) != len(large) {
		t.Fatalf("divided into %d and %d", len(first), len(rest))
	}
	if first[0].Node != "A" || first[len(first)-1].Node != large[99].Node {
		t.Errorf("those that hold the prompt are missing among %v", first)
	}
	for _, c := range first[1 : len(first)-1] {
		if c.Base < 75 {
			t.Errorf("%+v is not among the best", c)
		}
	}
	for i := range holds {
		holds[i] = true
	}
	if first, _ = selection.Narrow(large, holds); len(first) != selection.MaxCandidates {
		t.Errorf("%d to choose from, want %d", len(first), selection.MaxCandidates)
	}
}
