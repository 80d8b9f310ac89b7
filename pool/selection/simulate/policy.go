package main

import (
	"math"

	"github.com/ai-process/ktms/pool/selection"
)

// policy is a way to choose among candidates.
type policy struct {
	name string
	// reported: the spec's slot rule, by which a slot that the last heartbeat reported as taken is taken until the next.
	reported bool
	// weighs is what the pool chooses by.
	weighs selection.Policy
	// pick, where there is one, chooses instead of the pool: the index of one of the candidates of the best rank that have a
	// free slot. The pool then takes that one's slot.
	pick func(r *run, free []selection.Candidate, t *turn) int
}

var plain = selection.Policy{Plain: true}

// everyPolicy begins with the one that the others are compared with, and ends with the design.
var everyPolicy = []policy{
	{"spec's smooth WRR", true, plain, nil},
	{"corrected slot rule", false, plain, nil},
	{"least occupancy", false, plain, leastOccupied},
	{"knows the engines", false, plain, soonest},
	{"bounded hashing", false, plain, hashed},
	{"the design", false, selection.DefaultPolicy(), nil},
}

// picked leaves the pool the one candidate that a policy of its own picks, or all where none is free.
func (r *run) picked(candidates []selection.Candidate, q *request) []selection.Candidate {
	var free []selection.Candidate
	var at []int
	loads := r.loads()
	for i, c := range candidates {
		load := loads[r.at[c.Node]]
		c.InFlight = load.InFlight
		switch {
		case !c.Free() || load.Probing:
			continue
		case len(free) > 0 && c.Rank > free[0].Rank:
			continue
		case len(free) > 0 && c.Rank < free[0].Rank:
			free, at = free[:0], at[:0]
		}
		free, at = append(free, c), append(at, i)
	}
	if len(free) == 0 {
		return candidates
	}
	chosen := at[r.policy.pick(r, free, q.turn)]
	return candidates[chosen : chosen+1]
}

// leastOccupied takes the node with the smallest share of taken slots; of equals, the one with the most free ones.
func leastOccupied(_ *run, free []selection.Candidate, _ *turn) int {
	best := 0
	for i, a := range free {
		b := free[best]
		left, right := a.Occupied()*b.Max, b.Occupied()*a.Max
		if left < right || left == right && a.Max-a.Occupied() > b.Max-b.Occupied() {
			best = i
		}
	}
	return best
}

// soonest knows what no gateway can, all that goes on in the engines and what is in their memory, and takes the node whose
// first token comes soonest. It shows how much there is to gain.
func soonest(r *run, free []selection.Candidate, t *turn) int {
	best, shortest := 0, math.Inf(1)
	for i, c := range free {
		if seconds := r.nodes[r.at[c.Node]].engine.firstToken(t.chain); seconds < shortest {
			best, shortest = i, seconds
		}
	}
	return best
}

// boundOf is how much fuller than the average a node may get by hashing, the usual bound.
const boundOf = 1.25

// hashed is consistent hashing with bounded loads, by how a conversation begins: the nodes come in an order of the
// conversation's own, and the first one that is not too full takes it.
func hashed(_ *run, free []selection.Candidate, t *turn) int {
	taken, slots := int64(1), int64(0)
	for _, c := range free {
		taken += c.Occupied()
		slots += c.Max
	}
	bound := boundOf * float64(taken) / float64(slots)
	best, highest := -1, uint64(0)
	for i, c := range free {
		if float64(c.Occupied()) >= max(bound*float64(c.Max), 1) {
			continue
		}
		hash := t.chain[min(1, len(t.chain)-1)].hash
		for _, b := range []byte(c.Node) {
			hash = mix(hash ^ uint64(b))
		}
		if best < 0 || hash > highest {
			best, highest = i, hash
		}
	}
	return max(best, 0)
}
