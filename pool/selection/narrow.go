package selection

import "slices"

const (
	// NarrowFrom is the number of candidates beyond which weighing all of them would take the script too long.
	NarrowFrom = 50
	// NarrowTo is how many are weighed then, beside those that hold the prompt.
	NarrowTo = 16
)

// Narrow divides a large fleet into those to choose from first and the rest, to be asked when they are all full. First are
// the best by rank and static weight, and, as far as they fit, those that hold the deepest known prefix: holds has an entry
// for each candidate, or is nil. Both keep the order.
func Narrow(candidates []Candidate, holds []bool) (first, rest []Candidate) {
	if len(candidates) <= NarrowFrom {
		return candidates, nil
	}
	order := make([]int, len(candidates))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := candidates[i], candidates[j]
		switch {
		case a.Rank != b.Rank:
			return a.Rank - b.Rank
		case a.Base*a.Perf > b.Base*b.Perf:
			return -1
		case a.Base*a.Perf < b.Base*b.Perf:
			return 1
		}
		return 0
	})
	chosen := make([]bool, len(candidates))
	for _, i := range order[:NarrowTo] {
		chosen[i] = true
	}
	room := MaxCandidates - NarrowTo
	for _, i := range order[NarrowTo:] {
		if i < len(holds) && holds[i] && room > 0 {
			chosen[i] = true
			room--
		}
	}
	for i, c := range candidates {
		if chosen[i] {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	return first, rest
}
