package selection

import "math"

const (
	// paceGain is how much of a new measurement goes into what is known: ten requests make a node's pace, one does not.
	paceGain = 0.1
	// paceFloor is the least number of tokens that a time is divided by. The answer to a short prompt takes its time for
	// other reasons than reading it.
	paceFloor = 64
)

// Pace is how long a node takes to read a token of a prompt, in seconds, averaged over the calls of one replica to one
// model. The zero Pace is unknown. A call to a node that has to load the model first teaches nothing: nobody would ask the
// node again to find out that it is quick.
type Pace float64

// Learn is the pace after a call: the first token came after ttft seconds, and the node had so many tokens to read for it,
// those that were queued ahead and those of the prompt that it did not hold.
func (p Pace) Learn(ttft float64, tokens int64) Pace {
	x := ttft / float64(max(tokens, paceFloor))
	switch {
	case !(x > 0) || math.IsInf(x, 1):
		return p
	case !(p > 0):
		return Pace(x)
	}
	return p + Pace(paceGain*(x-float64(p)))
}

// Line is what waits for a slot, and where.
type Line struct {
	// Slots and Occupied are those of all nodes that could serve the request, foreign load included.
	Slots, Occupied int64
	// Waiting is how many stand in line ahead, in ours and in the engines'.
	Waiting int64
	// ServiceSeconds is how long a request occupies a slot on average.
	ServiceSeconds float64
}

// Wait estimates by Little's law how many seconds it takes until a slot is free for the next in line. It is 0 while one is
// free, and infinite where there are none.
func (l Line) Wait() float64 {
	switch {
	case l.Slots <= 0:
		return math.Inf(1)
	case l.Occupied+l.Waiting < l.Slots:
		return 0
	}
	return float64(max(l.Waiting, 0)+1) * max(l.ServiceSeconds, 0) / float64(l.Slots)
}
