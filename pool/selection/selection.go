// Package selection is the arithmetic that chooses a node for a request: who may serve it, what each is worth, whose turn it
// is. It does no I/O and knows neither clock nor chance, so that it can be simulated, fuzzed and explained.
//
// A choice has two steps. Prepare works on what changes with heartbeats: it drops the nodes that cannot serve the request
// and makes candidates of the others. Choose works on what changes with every request: leases, queued prefill, prefixes and
// turns. Where replicas share those, Choose runs as a script beside them, and the two have to agree to the last bit:
//
//   - The script needs of a candidate its static weight (Base × Perf), Rank, Max, Slots, External and SecondsPerToken, and
//     what it reads itself: InFlight, Queued, Matched and Current. Of the request it needs PromptTokens, of the policy Plain
//     and Affinity. A number with a fraction travels in the shortest form that reads back as the same float64.
//   - Fractions are float64, and every operation rounds once. A product is converted before it is added to something, or
//     some machines would fuse the two.
//   - Only + − × ÷, floor and sqrt are used, which IEEE 754 rounds correctly everywhere; pow is not among them.
//   - The weight is ((((Base × Perf) × Load) × Prefill) × Affinity) × Scale, from left to right, then the floor, at least 1.
//   - All that follows is done in integers that a float64 holds exactly.
//   - Candidates come in one order, by their ids. The first of equals wins.
package selection

// Policy is what an operator may turn.
type Policy struct {
	// Plain is smooth weighted round robin over every candidate, by base weight, load and speed alone.
	Plain bool
	// Affinity is how strongly a prefix that a node holds draws requests to it, from 0 to MaxAffinity.
	Affinity float64
}

const (
	// DefaultAffinity makes a node that holds a whole long prompt worth five that do not.
	DefaultAffinity = 4
	// MaxAffinity keeps weights within what a float64 counts exactly.
	MaxAffinity = 16
	// MaxBaseWeight does so, too. A base weight above it counts as this.
	MaxBaseWeight = 10_000
	// MaxCandidates is how many fit into one choice, for the same reason.
	MaxCandidates = 64
)

// DefaultPolicy is the one without settings.
func DefaultPolicy() Policy { return Policy{Affinity: DefaultAffinity} }

// Candidate is one node that could serve a request, for one model.
type Candidate struct {
	// Node is its id.
	Node string
	// Base and Perf are the factors that do not change with a request. Their product is all that Choose needs.
	Base, Perf float64
	// Rank is its tier, see Rank: the lower goes first.
	Rank int
	// Max is its max_concurrency, and Slots what its capacity level leaves of it.
	Max, Slots int64
	// External is the load on it that is not ours, see External.
	External int64
	// SecondsPerToken is how long it takes to read a token of a prompt; 0 = nobody knows of any node.
	SecondsPerToken float64

	// InFlight counts the leases on the node, for all its models.
	InFlight int64
	// Queued is how many tokens of prompts it has been sent and has not answered yet.
	Queued int64
	// Matched is how many tokens of this prompt it is believed to hold.
	Matched int64
	// Current is nginx's current_weight.
	Current int64
}

// Occupied is how many slots of the node are taken.
func (c Candidate) Occupied() int64 { return max(c.InFlight, 0) + max(c.External, 0) }

// Free reports whether the node has a slot left at its capacity level.
func (c Candidate) Free() bool { return c.Occupied() < min(c.Slots, c.Max) }

// Factors are what a weight is the product of.
type Factors struct{ Base, Load, Perf, Prefill, Affinity float64 }

// Weighed is what became of a candidate.
type Weighed struct {
	Verdict Verdict
	// Factors are told of every candidate, the weight only of those that may be chosen.
	Factors
	// Weight is in units of 1/Scale; 0 = not eligible.
	Weight int64
	// Shortlisted: its weight is close to the best one, so that it takes part in the round robin.
	Shortlisted bool
	// Current is the candidate's new current_weight.
	Current int64
}

// Choice is the outcome of Choose.
type Choice struct {
	// Chosen is the index of the candidate; -1 = all are full.
	Chosen int
	// Weighed has one entry for each candidate, in their order.
	Weighed []Weighed
}

// Choose picks a candidate for a prompt of so many tokens. The caller takes the lease, and stores the current weights.
func Choose(candidates []Candidate, promptTokens int64, policy Policy) Choice {
	choice := Choice{Chosen: -1, Weighed: make([]Weighed, len(candidates))}
	rank, found := 0, false
	for _, c := range candidates {
		if c.Free() && (!found || c.Rank < rank) {
			rank, found = c.Rank, true
		}
	}
	best := int64(0)
	for i, c := range candidates {
		w := &choice.Weighed[i]
		w.Factors = FactorsOf(c, promptTokens, policy)
		w.Current = c.Current
		switch {
		case !c.Free():
			w.Verdict = Full
		case c.Rank/2 > rank/2:
			w.Verdict = LessHealthy
		case c.Rank > rank:
			w.Verdict = Colder
		default:
			w.Weight = w.weight()
			best = max(best, w.Weight)
		}
	}
	for i := range choice.Weighed {
		w := &choice.Weighed[i]
		w.Shortlisted = w.Weight > 0 && (policy.Plain || w.Weight*shortlistOf >= best*shortlistFrom)
	}
	choice.Chosen = takeTurn(choice.Weighed)
	return choice
}

// The shortlist holds what is worth nine tenths of the best: a difference that predictions do not bear out anyway, and
// enough of them that replicas and bursts do not all run to one node.
const (
	shortlistFrom = 9
	shortlistOf   = 10
)
