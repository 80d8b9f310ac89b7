package selection

import "math"

const (
	// Scale makes integers of weights. The least weight that still tells two nodes apart, a node that is almost full and
	// minutes behind, is some 10⁻⁷.
	Scale = 100_000_000

	// maxWeight is what the largest factors come to: a base weight of MaxBaseWeight, four times the median's speed, a
	// prompt that the node holds whole. MaxCandidates of them stay below 2⁵².
	maxWeight = MaxBaseWeight * ratioMax * (1 + MaxAffinity) * Scale
)

const (
	// Speed of generation counts for more than the first token, which the prediction of prefill looks after.
	perfTPS, perfTTFT = 0.7, 0.3
	// A ratio outside of these says that a measurement is odd, not that a node is.
	ratioMin, ratioMax = 0.1, 4
	// prefillHalf is the wait at which prefill begins to matter: shorter ones are hardly felt.
	prefillHalf = 0.1
	// affinityFull is the number of tokens from which a held prefix counts fully; the gain of a short one is no reason to
	// choose a busier node.
	affinityFull = 1000
)

// FactorsOf are a candidate's factors for a prompt of so many tokens.
func FactorsOf(c Candidate, promptTokens int64, policy Policy) Factors {
	f := Factors{Base: c.Base, Load: loadFactor(c.Occupied(), c.Max), Perf: c.Perf, Prefill: 1, Affinity: 1}
	if policy.Plain {
		return f
	}
	prompt := max(promptTokens, 0)
	matched := min(max(c.Matched, 0), prompt)
	f.Prefill = prefillFactor(c.SecondsPerToken, max(c.Queued, 0)+prompt-matched)
	f.Affinity = affinityFactor(matched, prompt, policy.Affinity)
	return f
}

// weight is the product in units of 1/Scale. It is 1 where nothing is left of it, as the round robin needs it.
func (f Factors) weight() int64 {
	w := f.Base * f.Perf * f.Load * f.Prefill * f.Affinity * Scale
	switch {
	case !(w >= 1): // what is no number, too
		return 1
	case w >= maxWeight:
		return maxWeight
	}
	return int64(math.Floor(w))
}

// baseFactor is the weight that the operator gave a node.
func baseFactor(weight int64) float64 {
	if weight <= 0 {
		weight = DefaultBaseWeight
	}
	return float64(min(weight, MaxBaseWeight))
}

// loadFactor falls with the square of the free share.
func loadFactor(occupied, maximum int64) float64 {
	if maximum <= 0 || occupied >= maximum {
		return 0
	}
	free := 1 - float64(occupied)/float64(maximum)
	return free * free
}

// perfFactor compares measured speed with the medians of all nodes that have the model. What is unknown, 0, is taken to be
// as good as the median.
func perfFactor(tps, medianTPS, ttft, medianTTFT float64) float64 {
	return float64(perfTPS*ratio(tps, medianTPS)) + float64(perfTTFT*ratio(medianTTFT, ttft))
}

func ratio(a, b float64) float64 {
	if !(a > 0) || !(b > 0) {
		return 1
	}
	return min(max(a/b, ratioMin), ratioMax)
}

// prefillFactor is (h / (h + t))^1.5 for the t seconds until the node has read what is queued on it and the prompt.
func prefillFactor(secondsPerToken float64, tokens int64) float64 {
	if !(secondsPerToken > 0) {
		return 1
	}
	t := float64(secondsPerToken * float64(tokens))
	x := prefillHalf / (prefillHalf + t)
	return x * math.Sqrt(x)
}

// affinityFactor rises with the share of the prompt that a node holds.
func affinityFactor(matched, prompt int64, coefficient float64) float64 {
	if matched <= 0 || !(coefficient > 0) {
		return 1
	}
	share := float64(matched) / float64(prompt)
	depth := min(1, float64(matched)/affinityFull)
	return 1 + float64(min(coefficient, MaxAffinity)*share*depth)
}
