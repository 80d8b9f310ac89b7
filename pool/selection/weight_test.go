package selection

import (
	"math"
	"testing"
)

func TestLoadFactor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		occupied, maximum int64
		want              float64
	}{{0, 4, 1}, {1, 4, 0.5625}, {2, 4, 0.25}, {4, 4, 0}, {9, 4, 0}, {0, 0, 0}} {
		if got := loadFactor(test.occupied, test.maximum); got != test.want {
			t.Errorf("%d of %d: %v, want %v", test.occupied, test.maximum, got, test.want)
		}
	}
}

func TestPerfFactor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ tps, medianTPS, ttft, medianTTFT, want float64 }{
		"unknown":                 {0, 0, 0, 0, 1},
		"unknown among the known": {0, 50, 0, 1, 1},
		"the median":              {50, 50, 1, 1, 1},
		"twice as fast":           {100, 50, 1, 1, 1.7},
		"half as fast":            {25, 50, 1, 1, 0.65},
		"twice as quick":          {50, 50, 0.5, 1, 1.3},
		"half as quick":           {50, 50, 2, 1, 0.85},
		"odd upwards":             {1e9, 50, 1e-9, 1, 4},
		"odd downwards":           {1e-9, 50, 1e9, 1, 0.1},
		"only the first token":    {0, 50, 0.5, 1, 1.3},
		"no number":               {math.NaN(), 50, 1, 1, 1},
	} {
		if got := perfFactor(test.tps, test.medianTPS, test.ttft, test.medianTTFT); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestPrefillFactor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pace   float64
		tokens int64
	}{{0.001, 0}, {0.001, 100}, {0.0005, 3000}, {0.0001, 10}, {0.01, 100_000}} {
		wait := test.pace * float64(test.tokens)
		want := math.Pow(0.1/(0.1+wait), 1.5)
		if got := prefillFactor(test.pace, test.tokens); math.Abs(got-want) > 1e-14*want {
			t.Errorf("a wait of %v s: %v, want %v", wait, got, want)
		}
	}
	for _, unknown := range []float64{0, -1, math.NaN()} {
		if got := prefillFactor(unknown, 1000); got != 1 {
			t.Errorf("a pace of %v: %v, want 1", unknown, got)
		}
	}
}

func TestAffinityFactor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		matched, prompt   int64
		coefficient, want float64
	}{
		{0, 0, 4, 1},
		{0, 4000, 4, 1},
		{4000, 4000, 4, 5},
		{2000, 4000, 4, 3},
		{500, 500, 4, 3}, // all of a short prompt
		{250, 1000, 4, 1.25},
		{4000, 4000, 0, 1}, // switched off
		{4000, 4000, -1, 1},
		{4000, 4000, math.NaN(), 1},
		{4000, 4000, 1e9, 1 + MaxAffinity},
	} {
		if got := affinityFactor(test.matched, test.prompt, test.coefficient); got != test.want {
			t.Errorf("%d of %d at %v: %v, want %v", test.matched, test.prompt, test.coefficient, got, test.want)
		}
	}
}

func TestBaseFactor(t *testing.T) {
	t.Parallel()
	for weight, want := range map[int64]float64{0: 100, -3: 100, 1: 1, 250: 250, 1 << 31: MaxBaseWeight} {
		if got := baseFactor(weight); got != want {
			t.Errorf("%d: %v, want %v", weight, got, want)
		}
	}
}

// TestWeights pins whole weights to the last unit: whoever computes them elsewhere has to come to the same.
func TestWeights(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		candidate Candidate
		prompt    int64
		want      int64
	}{
		{Candidate{Base: 100, Perf: 1, Max: 4}, 1000, 10_000_000_000},
		{Candidate{Base: 100, Perf: 1, Max: 4, InFlight: 1}, 1000, 5_625_000_000},
		{Candidate{Base: 100, Perf: 1.7, Max: 3, InFlight: 1, SecondsPerToken: 0.0001}, 1000, 2_671_292_284},
		{Candidate{Base: 80, Perf: 1.3, Max: 7, InFlight: 2, External: 1, SecondsPerToken: 0.0007, Queued: 123}, 4567, 17_258_547},
		{Candidate{Base: 80, Perf: 1.3, Max: 7, InFlight: 2, SecondsPerToken: 0.0007, Matched: 3000}, 4567, 464_839_824},
		{Candidate{Base: 1, Perf: 0.1, Max: 100, InFlight: 99, SecondsPerToken: 0.01, Queued: 1_000_000}, 1_000_000, 1},
		{Candidate{Base: 1e300, Perf: 4, Max: 1}, 10, maxWeight},
		{Candidate{Base: math.NaN(), Perf: 4, Max: 1}, 10, 1},
	} {
		if got := FactorsOf(test.candidate, test.prompt, DefaultPolicy()).weight(); got != test.want {
			t.Errorf("%+v: %d, want %d", test.candidate, got, test.want)
		}
	}
	if total := int64(maxWeight) * MaxCandidates; total > 1<<52 {
		t.Errorf("the largest total %d is no exact float64 any more once current weights are added", total)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{0, 0}, 0},
		{[]float64{3}, 3},
		{[]float64{0, 3, 0, 1}, 2},
		{[]float64{9, 1, math.NaN(), 2, -4}, 2},
	} {
		if got := median(append([]float64(nil), test.values...)); got != test.want {
			t.Errorf("%v: %v, want %v", test.values, got, test.want)
		}
	}
}
