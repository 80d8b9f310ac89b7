package selection

import (
	"cmp"
	"slices"
)

const (
	// DefaultBaseWeight is the weight of a node that was given none.
	DefaultBaseWeight = 100
	// FullLevel is the capacity level, in percent, of a node that is there for requests all the time.
	FullLevel = 100
)

// Health is the part of a node's state that matters here.
type Health int

// The states, the spec's. A trial is the one request that a broken circuit lets through after its cooldown.
const (
	Offline Health = iota
	Draining
	Broken
	Suspect
	Trial
	Healthy
)

// Node is a node as its last heartbeat and the calls to it have shown it.
type Node struct {
	ID     string
	Health Health
	// Models are those that it reports.
	Models []Model
	// Allowed are those that its key allows; none = any.
	Allowed []string
	// BaseWeight is the operator's; 0 = DefaultBaseWeight.
	BaseWeight int64
	// MaxConcurrency is the number of its slots; 0 = 1.
	MaxConcurrency int64
	// Level is the share of its time, in percent, that it gives to requests: 0 to FullLevel.
	Level int64
	// External is the load on it that is not ours, see External.
	External int64
}

// Model is a model on a node. Measurements are 0 while unknown.
type Model struct {
	ID string
	// Warm: its weights are in memory.
	Warm bool
	// Context is how many tokens prompt and answer may have together; 0 = unknown, which excludes nothing.
	Context int64
	// TokensPerSecond and TTFTSeconds are the speed of generation and the time to the first token, as measured.
	TokensPerSecond, TTFTSeconds float64
	// SecondsPerToken is how long it takes to read a token of a prompt, as this replica has learned it, see Pace.
	SecondsPerToken float64
}

// Query is what a choice needs to know of a request.
type Query struct {
	Model string
	// PromptTokens is estimated; MaxOutputTokens is the request's limit, or the one that holds without.
	PromptTokens, MaxOutputTokens int64
	// Tried are the nodes that have failed this request.
	Tried []string
}

// Verdict says whether a node may serve a request, and if not, why.
type Verdict int

// The verdicts. Prepare gives the first ones, Choose those from Full on.
const (
	Eligible Verdict = iota
	NoModel
	NotAllowed
	IsOffline
	IsDraining
	IsBroken
	WasTried
	TooLong
	Paused
	Full
	LessHealthy
	Colder
)

func (v Verdict) String() string {
	return [...]string{
		"eligible", "does not have the model", "its key does not allow the model", "offline", "draining",
		"circuit broken", "has failed this request", "its context is too short", "paused by its schedule",
		"all slots are taken", "a healthier node is free", "a node with the model in memory is free",
	}[v]
}

// Slots is what a capacity level, in percent, leaves of a node's slots: ceil(max × level).
func Slots(maxConcurrency, level int64) int64 {
	level = min(max(level, 0), FullLevel)
	return (max(maxConcurrency, 0)*level + FullLevel - 1) / FullLevel
}

// External is the load from outside the gateway: what a node reported as active, beyond the leases that were counted when
// that heartbeat was written. Adding it to the leases of now frees a slot as soon as its lease ends; a maximum of the two
// would keep it taken until the next heartbeat.
func External(active, counted int64) int64 { return max(active-counted, 0) }

// Rank is a node's tier: health goes before warmth, a trial counts as healthy.
func Rank(h Health, warm bool) int {
	rank := 0
	if h == Suspect {
		rank += 2
	}
	if !warm {
		rank++
	}
	return rank
}

// Prepare makes candidates of the nodes that could serve the request if they have a free slot, in the order of their ids,
// and gives a verdict on each node in the order in which they came. What Choose needs beyond that is left zero.
func Prepare(nodes []Node, q Query) ([]Candidate, []Verdict) {
	candidates := make([]Candidate, 0, len(nodes))
	verdicts := make([]Verdict, len(nodes))
	medians := mediansOf(nodes, q.Model)
	for i := range nodes {
		n := &nodes[i]
		var m *Model
		if m, verdicts[i] = vet(n, q); verdicts[i] != Eligible {
			continue
		}
		maximum := max(n.MaxConcurrency, 1)
		c := Candidate{
			Node: n.ID,
			Base: baseFactor(n.BaseWeight),
			Perf: perfFactor(m.TokensPerSecond, medians.tps, m.TTFTSeconds, medians.ttft),
			Rank: Rank(n.Health, m.Warm),
			Max:  maximum, Slots: Slots(maximum, n.Level), External: n.External,
			SecondsPerToken: m.SecondsPerToken,
		}
		if !(c.SecondsPerToken > 0) {
			c.SecondsPerToken = medians.pace
		}
		candidates = append(candidates, c)
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int { return cmp.Compare(a.Node, b.Node) })
	return candidates, verdicts
}

func vet(n *Node, q Query) (*Model, Verdict) {
	m := n.model(q.Model)
	switch {
	case m == nil:
		return nil, NoModel
	case len(n.Allowed) > 0 && !slices.Contains(n.Allowed, q.Model):
		return nil, NotAllowed
	case n.Health == Draining:
		return nil, IsDraining
	case n.Health == Broken:
		return nil, IsBroken
	case n.Health != Healthy && n.Health != Trial && n.Health != Suspect:
		return nil, IsOffline
	case slices.Contains(q.Tried, n.ID):
		return nil, WasTried
	case m.Context > 0 && q.PromptTokens > m.Context-q.MaxOutputTokens:
		return nil, TooLong
	case n.Level <= 0:
		return nil, Paused
	}
	return m, Eligible
}

func (n *Node) model(id string) *Model {
	for i := range n.Models {
		if n.Models[i].ID == id {
			return &n.Models[i]
		}
	}
	return nil
}

type medians struct{ tps, ttft, pace float64 }

// mediansOf is taken over every node that has the model, whatever its state: a fleet that loses its fast half does not
// become fast by that.
func mediansOf(nodes []Node, model string) medians {
	var tps, ttft, pace []float64
	for i := range nodes {
		if m := nodes[i].model(model); m != nil {
			tps = append(tps, m.TokensPerSecond)
			ttft = append(ttft, m.TTFTSeconds)
			pace = append(pace, m.SecondsPerToken)
		}
	}
	return medians{tps: median(tps), ttft: median(ttft), pace: median(pace)}
}

// median is that of the positive values; 0 = there are none.
func median(values []float64) float64 {
	known := slices.DeleteFunc(values, func(v float64) bool { return !(v > 0) })
	slices.Sort(known)
	n := len(known)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return known[n/2]
	}
	return (known[n/2-1] + known[n/2]) / 2
}
