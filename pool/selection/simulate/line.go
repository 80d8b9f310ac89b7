package main

import (
	"slices"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// The figures of package vendors/nodes, in seconds.
const (
	serviceGain = 0.1
	shortestNap = 0.02
	longestNap  = 0.25
	nappers     = 4
)

// gateway is one replica, with what it has learned by itself.
type gateway struct {
	paces map[string]selection.Pace
	// line is who waits for a slot, the longest waiting first; service how long a call takes on average, 0 = unknown.
	line    []*request
	service float64
}

// served learns from a call.
func (g *gateway) served(seconds float64) {
	if g.service == 0 {
		g.service = seconds
		return
	}
	g.service += serviceGain * (seconds - g.service)
}

// freed wakes the first in line.
func (r *run) freed(g *gateway) {
	if len(g.line) == 0 || g.line[0].woken {
		return
	}
	q := g.line[0]
	q.woken = true
	r.wake(q, 0)
}

// wake lets a request look for a slot again, instead of when it had planned to.
func (r *run) wake(q *request, seconds float64) {
	q.naps++
	nap := q.naps
	r.after(seconds, func() {
		if q.naps == nap {
			q.woken = false
			r.try(q)
		}
	})
}

// leave takes a request out of the line, if it is in it. Whoever is first now may have missed a slot that was freed for it.
func (r *run) leave(q *request) {
	if i := slices.Index(q.gateway.line, q); i >= 0 {
		q.gateway.line = slices.Delete(q.gateway.line, i, i+1)
		q.naps++
		q.woken = false
		r.freed(q.gateway)
	}
}

// wait lets a request wait as vendors/nodes does: unless by Little's law it takes too long.
func (r *run) wait(q *request, fleet pool.Fleet, candidates []selection.Candidate, occupied int64) {
	g := q.gateway
	ahead := slices.Index(g.line, q)
	if ahead < 0 {
		ahead = len(g.line)
		g.line = append(g.line, q)
	}
	line := selection.Line{Occupied: occupied, Waiting: int64(ahead), ServiceSeconds: g.service}
	for _, c := range candidates {
		line.Slots += min(c.Slots, c.Max)
		line.Waiting += foreignWaiting(&fleet.Nodes[r.at[c.Node]])
	}
	left := q.end - r.now
	if left <= 0 || line.Wait() > left {
		r.spill(q)
		return
	}
	mean := min(shortestNap+shortestNap*float64(ahead)/nappers, longestNap)
	r.wake(q, min(mean/2+mean*r.random.Float64(), left))
}

// foreignWaiting is what waits in a node's engine beyond the leases and beyond what counts as occupying it.
func foreignWaiting(n *pool.Node) int64 {
	return max(*n.Active+*n.Waiting-n.Counted, 0) - max(*n.Active-n.Counted, 0)
}
