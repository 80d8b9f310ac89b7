package main

import "github.com/ai-process/ktms/pool/selection"

// policy is a way to choose among candidates.
type policy struct {
	name string
	// reported: the spec's slot rule, by which a slot that the last heartbeat reported as taken is taken until the next.
	reported bool
	choose   func(candidates []selection.Candidate, promptTokens int64) selection.Choice
}

// policies begin with the one that the others are compared with.
var policies = []policy{
	{"spec's smooth WRR", true, choosing(selection.Policy{Plain: true})},
	{"corrected slot rule", false, choosing(selection.Policy{Plain: true})},
	{"least occupancy", false, leastOccupied},
	{"the design", false, choosing(selection.DefaultPolicy())},
}

func choosing(p selection.Policy) func([]selection.Candidate, int64) selection.Choice {
	return func(candidates []selection.Candidate, promptTokens int64) selection.Choice {
		return selection.Choose(candidates, promptTokens, p)
	}
}

// leastOccupied takes the node with the smallest share of taken slots; of equals, the one with the most free ones.
func leastOccupied(candidates []selection.Candidate, promptTokens int64) selection.Choice {
	choice := selection.Choose(candidates, promptTokens, selection.Policy{Plain: true})
	choice.Chosen = -1
	for i, w := range choice.Weighed {
		choice.Weighed[i].Current = candidates[i].Current
		if w.Verdict != selection.Eligible {
			continue
		}
		if choice.Chosen < 0 {
			choice.Chosen = i
			continue
		}
		a, b := candidates[i], candidates[choice.Chosen]
		left, right := a.Occupied()*b.Max, b.Occupied()*a.Max
		if left < right || left == right && a.Max-a.Occupied() > b.Max-b.Occupied() {
			choice.Chosen = i
		}
	}
	return choice
}
