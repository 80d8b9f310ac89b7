package main

import (
	"math/rand/v2"

	"github.com/ai-process/ktms/pool/selection"
)

const (
	// maxOutput is the limit on the answer's tokens that requests come with.
	maxOutput = 1024
	// The next try to get a slot comes after this and up to as much again, in seconds.
	slotPoll = 0.025
	// The cloud, where requests spill to.
	cloudTTFT, cloudTPS = 0.6, 60
)

// run is one policy under one workload.
type run struct {
	clock
	shared   *shared
	policy   policy
	gateways [gateways][]selection.Pace // each with its own
	random   *rand.Rand                 // for pauses between tries alone
	from, to float64                    // requests that arrive within are counted
	outcome  outcome
}

// request is a turn on its way.
type request struct {
	turn    *turn
	arrived float64
	counted bool
	tried   []string
	waiting bool
	answer  func() // goes on with the session
}

// attempt is a request on a node.
type attempt struct {
	*request
	node       *nodeState
	dispatched float64
	queued     int64 // tokens that it has added to the node's queue
	ahead      int64 // tokens to read until its first one, as believed
	trial      bool
	cold       bool // the node was, so that its first token says nothing of its pace
	first      float64
	began      bool
	over       bool
}

// play lets a session happen.
func (r *run) play(s *session) {
	var next func(i int)
	next = func(i int) {
		if i == len(s.turns) || r.now > r.to {
			return
		}
		r.arrive(s.turns[i], func() {
			if i+1 < len(s.turns) {
				r.after(s.turns[i+1].pause, func() { next(i + 1) })
			}
		})
	}
	r.after(s.start-r.now, func() { next(0) })
}

func (r *run) arrive(t *turn, answer func()) {
	q := &request{turn: t, arrived: r.now, counted: r.now >= r.from && r.now <= r.to, answer: answer}
	if q.counted {
		r.outcome.requests++
	}
	r.try(q)
}

// try chooses a node and takes a lease, or waits, or gives up.
func (r *run) try(q *request) {
	s, paces := r.shared, r.gateways[q.turn.gateway]
	candidates, _ := selection.Prepare(s.views(r.now, paces, r.policy.reported),
		selection.Query{Model: model, PromptTokens: q.turn.estimate, MaxOutputTokens: maxOutput, Tried: q.tried})
	matched := s.matched(q.turn.prefixes, r.now)
	nodes := make([]*nodeState, len(candidates))
	for i, at := 0, 0; i < len(candidates); at++ {
		if n := s.nodes[at]; n.id == candidates[i].Node { // both are in the order of ids
			c := &candidates[i]
			c.InFlight, c.Queued, c.Current, c.Matched = n.inFlight, n.queued, n.current, matched[at]
			nodes[i] = n
			i++
		}
	}
	choice := r.policy.choose(candidates, q.turn.estimate)
	for i, w := range choice.Weighed {
		nodes[i].current = w.Current
	}
	if choice.Chosen < 0 {
		r.wait(q, candidates)
		return
	}
	if q.waiting {
		q.waiting = false
		s.waiting--
	}
	n := nodes[choice.Chosen]
	if c := candidates[choice.Chosen]; !c.Free() || int64(len(n.calls)) >= n.engine.slots {
		r.outcome.overbooked++
	}
	r.dispatch(q, n, candidates[choice.Chosen])
}

func (r *run) wait(q *request, candidates []selection.Candidate) {
	s := r.shared
	line := selection.Line{Waiting: s.waiting, ServiceSeconds: s.service}
	for _, c := range candidates {
		line.Slots += c.Slots
		line.Occupied += c.Occupied()
	}
	if q.waiting {
		line.Waiting--
	}
	left := q.arrived + queueTimeout - r.now
	pause := slotPoll * (1 + r.random.Float64())
	if !q.waiting && line.Wait() > queueTimeout || left < pause {
		r.spill(q)
		return
	}
	if !q.waiting {
		q.waiting = true
		s.waiting++
	}
	r.after(pause, func() { r.try(q) })
}

func (r *run) spill(q *request) {
	if q.waiting {
		q.waiting = false
		r.shared.waiting--
	}
	if q.counted {
		r.outcome.spilled++
	}
	r.after(cloudTTFT+float64(q.turn.answer.tokens)/cloudTPS, q.answer)
}

func (r *run) dispatch(q *request, n *nodeState, c selection.Candidate) {
	own := max(q.turn.estimate-c.Matched, 0)
	a := &attempt{
		request: q, node: n, dispatched: r.now, queued: own, ahead: n.queued + own,
		trial: n.health(r.now) == selection.Trial, cold: !n.warm,
	}
	n.trial = n.trial || a.trial
	n.calls[a] = true
	n.inFlight++
	n.queued += own
	r.shared.believe(n, q.turn.prefixes, r.now)
	chain := q.turn.chain
	j := &job{
		chain: chain, answer: chain[len(chain)-1].next(q.turn.answer), output: q.turn.answer.tokens,
		started: func(held int) { r.started(a, held) },
		done:    func() { r.done(a) },
		failed:  func() { r.failed(a) },
	}
	if !n.engine.submit(j) {
		r.failed(a)
	}
}

func (r *run) started(a *attempt, held int) {
	if a.over {
		return
	}
	n, ttft := a.node, r.now-a.dispatched
	a.began, a.first = true, r.now
	n.queued -= a.queued
	n.failures, n.trial = 0, false
	n.ttft = average(n.ttft, ttft)
	if !a.cold {
		pace := &r.gateways[a.turn.gateway][n.index]
		*pace = pace.Learn(ttft, a.ahead)
	}
	if a.counted {
		r.outcome.ttft = append(r.outcome.ttft, r.now-a.arrived)
		r.outcome.prompt += a.turn.chain[len(a.turn.chain)-1].tokens
		r.outcome.held += held
	}
}

func (r *run) done(a *attempt) {
	if a.over {
		return
	}
	r.release(a)
	a.node.tps = average(a.node.tps, float64(a.turn.answer.tokens)/max(r.now-a.first, 1e-3))
	r.shared.service = average(r.shared.service, r.now-a.dispatched)
	if a.counted {
		r.outcome.whole = append(r.outcome.whole, r.now-a.arrived)
	}
	a.answer()
}

// failed goes on with the next node, unless the client has seen the beginning of an answer.
func (r *run) failed(a *attempt) {
	if a.over {
		return
	}
	r.release(a)
	a.node.failed(r.now)
	if a.began {
		if a.counted {
			r.outcome.broken++
		}
		a.answer()
		return
	}
	a.node.queued -= a.queued
	a.tried = append(a.tried, a.node.id)
	r.try(a.request)
}

func (r *run) release(a *attempt) {
	a.over = true
	a.node.inFlight--
	delete(a.node.calls, a)
}
