package selection

// maxCurrent bounds a current weight. Nothing real comes near it; it keeps every sum exact in a float64.
const maxCurrent = 1 << 52

// takeTurn is nginx's smooth weighted round robin over the shortlist: everyone's current weight grows by its weight, the
// largest one wins, the first of equals, and pays what all have gained. Those who do not take part keep theirs. It returns
// the winner's index, or -1.
func takeTurn(weighed []Weighed) int {
	winner, total := -1, int64(0)
	for i := range weighed {
		w := &weighed[i]
		if !w.Shortlisted {
			continue
		}
		w.Current = min(max(w.Current, -maxCurrent), maxCurrent) + w.Weight
		total += w.Weight
		if winner < 0 || w.Current > weighed[winner].Current {
			winner = i
		}
	}
	if winner >= 0 {
		weighed[winner].Current -= total
	}
	return winner
}
