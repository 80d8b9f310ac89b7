package selection_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

// TestSequence is nginx's own example, and the one in which three share.
func TestSequence(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		weights []float64
		want    string
	}{
		{[]float64{5, 1, 1}, "aabacaa"},
		{[]float64{3, 2, 1}, "abacba"},
		{[]float64{2, 2}, "abab"},
		{[]float64{0.3, 0.1}, "aaba"},
	} {
		var candidates []selection.Candidate
		for i, w := range test.weights {
			candidates = append(candidates, selection.Candidate{Node: string(rune('a' + i)), Base: w, Perf: 1, Max: 1, Slots: 1})
		}
		got := ""
		for range len(test.want) {
			choice := selection.Choose(candidates, 100, selection.Policy{Plain: true})
			got += candidates[choice.Chosen].Node
			for i, w := range choice.Weighed {
				candidates[i].Current = w.Current
			}
		}
		if got != test.want {
			t.Errorf("weights %v give %s, want %s", test.weights, got, test.want)
		}
		for _, c := range candidates {
			if c.Current != 0 {
				t.Errorf("weights %v: after a round the current weight of %s is %d, want 0", test.weights, c.Node, c.Current)
			}
		}
	}
}

// TestChosenIsAllowed holds random choices to what must never happen.
func TestChosenIsAllowed(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		candidates := make([]selection.Candidate, random.IntN(selection.MaxCandidates+1))
		for i := range candidates {
			candidates[i] = selection.Candidate{
				Node: fmt.Sprint(i), Base: float64(random.IntN(selection.MaxBaseWeight + 1)), Perf: random.Float64() * 4,
				Rank: random.IntN(4), Max: random.Int64N(10), Slots: random.Int64N(10), External: random.Int64N(4),
				SecondsPerToken: random.Float64() * 0.01, InFlight: random.Int64N(10), Queued: random.Int64N(100_000),
				Matched: random.Int64N(10_000), Current: random.Int64N(1<<53) - 1<<52,
			}
		}
		policy := selection.Policy{Plain: random.IntN(4) == 0, Affinity: random.Float64() * 20}
		checkChoice(t, candidates, random.Int64N(20_000), policy)
	}
}

// checkChoice makes a choice and fails where it breaks a promise.
func checkChoice(t *testing.T, candidates []selection.Candidate, prompt int64, policy selection.Policy) {
	t.Helper()
	choice := selection.Choose(candidates, prompt, policy)
	again := selection.Choose(candidates, prompt, policy)
	if again.Chosen != choice.Chosen {
		t.Fatalf("the same candidates gave %d and %d", choice.Chosen, again.Chosen)
	}
	free, kept := -1, int64(0)
	for i, c := range candidates {
		if c.Free() && (free < 0 || c.Rank < candidates[free].Rank) {
			free = i
		}
		w := choice.Weighed[i]
		if w.Weight != again.Weighed[i].Weight || w.Current != again.Weighed[i].Current {
			t.Fatalf("the same candidates gave %v and %v", w, again.Weighed[i])
		}
		if w.Shortlisted {
			kept += w.Current - min(max(c.Current, -(1<<52)), 1<<52)
		}
		if (w.Verdict == selection.Eligible) != (w.Weight > 0) {
			t.Fatalf("%v has the verdict %s and the weight %d", c, w.Verdict, w.Weight)
		}
		if !w.Shortlisted && w.Current != c.Current {
			t.Fatalf("%v took no part and has now %d", c, w.Current)
		}
		if w.Shortlisted && (w.Current >= 1<<53 || w.Current <= -(1<<53)) {
			t.Fatalf("%d is no exact float64", w.Current)
		}
	}
	if (choice.Chosen < 0) != (free < 0) {
		t.Fatalf("chose %d, while the first free one is %d", choice.Chosen, free)
	}
	if free < 0 {
		return
	}
	chosen, best := choice.Weighed[choice.Chosen], int64(0)
	for _, w := range choice.Weighed {
		best = max(best, w.Weight)
	}
	switch c := candidates[choice.Chosen]; {
	case c.InFlight+c.External >= c.Max || c.InFlight+c.External >= c.Slots:
		t.Fatalf("chose %v, which is full", c)
	case c.Rank > candidates[free].Rank:
		t.Fatalf("chose %v, while %v fits", c, candidates[free])
	case !chosen.Shortlisted:
		t.Fatalf("chose %v outside of the shortlist", c)
	case !policy.Plain && chosen.Weight*10 < best*9:
		t.Fatalf("chose %v of weight %d, while the best is %d", c, chosen.Weight, best)
	}
	if kept != 0 {
		t.Fatalf("a turn took more or less than it gave, by %d", kept)
	}
}

// TestTiers shows which of a few nodes is left over by the tiers.
func TestTiers(t *testing.T) {
	t.Parallel()
	candidate := func(h selection.Health, warm bool, inFlight int64) selection.Candidate {
		return selection.Candidate{Base: 100, Perf: 1, Rank: selection.Rank(h, warm), Max: 2, Slots: 2, InFlight: inFlight}
	}
	for name, test := range map[string]struct {
		candidates []selection.Candidate
		want       []selection.Verdict
	}{
		"warm before cold": {
			[]selection.Candidate{candidate(selection.Healthy, false, 0), candidate(selection.Healthy, true, 1)},
			[]selection.Verdict{selection.Colder, selection.Eligible},
		},
		"cold when the warm are full": {
			[]selection.Candidate{candidate(selection.Healthy, false, 0), candidate(selection.Healthy, true, 2)},
			[]selection.Verdict{selection.Eligible, selection.Full},
		},
		"healthy and cold before suspect and warm": {
			[]selection.Candidate{candidate(selection.Suspect, true, 0), candidate(selection.Healthy, false, 1)},
			[]selection.Verdict{selection.LessHealthy, selection.Eligible},
		},
		"a trial is healthy": {
			[]selection.Candidate{candidate(selection.Trial, true, 0), candidate(selection.Suspect, true, 0)},
			[]selection.Verdict{selection.Eligible, selection.LessHealthy},
		},
		"suspect as the last resort, warm before cold": {
			[]selection.Candidate{
				candidate(selection.Suspect, false, 0), candidate(selection.Healthy, true, 2), candidate(selection.Suspect, true, 0),
			},
			[]selection.Verdict{selection.Colder, selection.Full, selection.Eligible},
		},
	} {
		choice := selection.Choose(test.candidates, 100, selection.DefaultPolicy())
		for i, w := range choice.Weighed {
			if w.Verdict != test.want[i] {
				t.Errorf("%s: node %d: %s, want: %s", name, i, w.Verdict, test.want[i])
			}
		}
	}
}

// TestSignals shows that each signal alone moves the choice the right way.
func TestSignals(t *testing.T) {
	t.Parallel()
	even := selection.Candidate{Base: 100, Perf: 1, Max: 8, Slots: 8, SecondsPerToken: 0.0005}
	for name, worse := range map[string]func(*selection.Candidate){
		"load":          func(c *selection.Candidate) { c.InFlight = 2 },
		"foreign load":  func(c *selection.Candidate) { c.External = 2 },
		"queue":         func(c *selection.Candidate) { c.Queued = 2000 },
		"slow prefill":  func(c *selection.Candidate) { c.SecondsPerToken = 0.001 },
		"speed":         func(c *selection.Candidate) { c.Perf = 0.5 },
		"base weight":   func(c *selection.Candidate) { c.Base = 50 },
		"shorter match": func(c *selection.Candidate) { c.Matched = 200 },
	} {
		a, b := even, even
		a.Matched, b.Matched = 800, 800
		worse(&a)
		// Whose turn it is weighs nothing against a node outside of the shortlist.
		a.Current = 1 << 50
		if got := selection.Choose([]selection.Candidate{a, b}, 1000, selection.DefaultPolicy()).Chosen; got != 1 {
			t.Errorf("%s: chose %d, want the better one", name, got)
		}
	}
}

// FuzzChoose feeds odd numbers.
func FuzzChoose(f *testing.F) {
	f.Add(uint64(1), 0.0, 0.0, 0.0, int64(0), int64(0), int64(0), 4.0)
	f.Add(uint64(2), 1e300, -1.0, 1e-300, int64(-5), int64(1<<62), int64(1<<40), -1.0)
	f.Fuzz(func(t *testing.T, seed uint64, base, perf, pace float64, inFlight, queued, prompt int64, affinity float64) {
		random := rand.New(rand.NewPCG(seed, 3))
		candidates := make([]selection.Candidate, 1+random.IntN(8))
		for i := range candidates {
			candidates[i] = selection.Candidate{
				Node: fmt.Sprint(i), Base: base, Perf: perf * random.Float64(), Rank: random.IntN(4), Max: random.Int64N(9),
				Slots: random.Int64N(9), SecondsPerToken: pace, InFlight: min(max(inFlight, 0), 1<<40) * random.Int64N(2),
				// As many as a float64 counts exactly; tokens are refused long before.
				Queued: min(max(queued, -(1<<52)), 1<<52), Matched: random.Int64N(1 << 40), Current: random.Int64() - random.Int64(),
			}
		}
		checkChoice(t, candidates, min(max(prompt, 0), 1<<52), selection.Policy{Affinity: affinity})
	})
}
