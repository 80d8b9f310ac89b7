package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

const (
	// crashedFor and drainedFor are how long such a node is away, frozenFor how long it hangs before someone kills it.
	crashedFor, drainedFor, frozenFor = 60.0, 60.0, 45.0
	// A straggler is so much slower for so long.
	stragglerBy, stragglerFor = 4.0, 60.0
	// lostPerFault is how many seconds of a node's work a fault costs on average, by the shares of the kinds in fault and
	// half a minute for loading the weights.
	lostPerFault = (crashedFor+30)*2/6 + drainedFor/6 + stragglerFor*(1-1/stragglerBy)*3/6
	// foreignShare is the share of its slots that the clients of others keep busy on a node that they use.
	foreignShare = 0.2
)

// foreign is how many nodes of a kind others use, too.
var foreign = map[string]int{"a100": 1, "rtx4090": 1}

// heartbeats lets every node report, each at its own moment.
func (r *run) heartbeats(random *rand.Rand) {
	for _, n := range r.shared.nodes {
		var beat func()
		beat = func() {
			n.beat(r.now)
			r.giveUp(n)
			if r.now < r.to {
				r.after(heartbeatEvery, beat)
			}
		}
		n.beat(0)
		r.after(random.Float64()*heartbeatEvery, beat)
	}
}

// giveUp ends the calls to a node that is gone: without a heartbeat nothing more is expected of it.
func (r *run) giveUp(n *nodeState) {
	if !n.engine.frozen || r.now-n.heartbeat <= heartbeatTTL {
		return
	}
	calls := make([]*attempt, 0, len(n.calls))
	for a := range n.calls {
		calls = append(calls, a)
	}
	slices.SortFunc(calls, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.dispatched, b.dispatched), cmp.Compare(a.turn.answer.id, b.turn.answer.id))
	})
	for _, a := range calls {
		r.failed(a)
	}
}

// faults plans what goes wrong, the same for every policy.
func (r *run) faults(random *rand.Rand, every float64) {
	if every <= 0 {
		return
	}
	for at := random.ExpFloat64() * every; at < r.to; at += random.ExpFloat64() * every {
		n := r.shared.nodes[random.IntN(len(r.shared.nodes))]
		kind := random.IntN(6)
		r.after(at, func() { r.fault(n, kind) })
	}
}

// fault strikes a node that is well; half of the faults make a straggler.
func (r *run) fault(n *nodeState, kind int) {
	if n.engine.down || n.engine.frozen || n.engine.slow > 1 || n.draining {
		return
	}
	switch kind {
	case 0:
		n.engine.crash()
		r.after(crashedFor, func() { r.comeBack(n) })
	case 1:
		n.engine.freeze()
		r.after(frozenFor, func() {
			n.engine.crash()
			r.after(crashedFor-frozenFor, func() { r.comeBack(n) })
		})
	case 2:
		n.draining = true
		r.after(drainedFor, func() { n.draining = false })
	default:
		n.engine.slowDown(stragglerBy)
		r.after(stragglerFor, func() { n.engine.slowDown(1) })
	}
}

// comeBack registers a node again.
func (r *run) comeBack(n *nodeState) {
	n.engine.restart()
	n.life++
	n.beat(r.now)
	r.after(n.engine.startup, func() { n.beat(r.now) })
}

// foreigners send their requests past the gateways.
func (r *run) foreigners(random *rand.Rand) {
	taken := map[string]int{}
	for _, n := range r.shared.nodes {
		if taken[n.engine.name] == foreign[n.engine.name] {
			continue
		}
		taken[n.engine.name]++
		const prompt, output = 500, 200
		e := n.engine
		seconds := e.overhead + prompt/e.prefill + output/e.full
		rate := foreignShare * float64(e.slots) / seconds
		for at := random.ExpFloat64() / rate; at < r.to; at += random.ExpFloat64() / rate {
			p := link{random.Uint64(), prompt}
			j := &job{chain: []link{p}, answer: p.next(piece{1, output}), output: output, started: func(int) {}, done: func() {}, failed: func() {}}
			r.after(at, func() { e.submit(j) })
		}
	}
}

func sortJobs(jobs []*job) {
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.order, b.order) })
}
