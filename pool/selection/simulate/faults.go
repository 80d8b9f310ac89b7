package main

import (
	"cmp"
	"context"
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

// The figures of package vendors/nodes for machines that go silent, in seconds: how often calls are looked at, for how long a
// call is silent before its machine is asked, for how long where the machine is offline, how long it has for its answers, and
// for how long a call has been silent that is given up then.
const (
	lookEvery    = 1.0
	silence      = 5.0
	shortSilence = 1.0
	answerTime   = 2 * 3.0
	givenUpFrom  = 3.0
)

// heartbeats registers every node and lets it report, each at its own moment.
func (r *run) heartbeats(random *rand.Rand) {
	for _, n := range r.nodes {
		var beat func()
		beat = func() {
			r.beat(n)
			if r.now < r.to {
				r.after(heartbeatEvery, beat)
			}
		}
		r.register(n)
		r.after(random.Float64()*heartbeatEvery, beat)
	}
}

// feel asks a machine that has gone silent under calls whether it lives, and gives up those calls when it does not.
func (r *run) feel(n *node, life int) {
	if !n.engine.frozen || n.engine.life != life {
		return
	}
	from := silence
	if r.now-n.frozenAt > heartbeatTTL {
		from = shortSilence
	}
	if !n.asked && len(r.silent(n, from)) > 0 {
		n.asked = true
		r.after(answerTime, func() {
			n.asked = false
			if n.engine.frozen && n.engine.life == life {
				for _, a := range r.silent(n, givenUpFrom) {
					r.failed(a)
				}
			}
		})
	}
	r.after(lookEvery, func() { r.feel(n, life) })
}

// silent are the calls to a frozen node that have heard nothing for so long.
func (r *run) silent(n *node, seconds float64) []*attempt {
	var calls []*attempt
	for a := range n.calls {
		if r.now-max(a.dispatched, n.frozenAt) >= seconds {
			calls = append(calls, a)
		}
	}
	slices.SortFunc(calls, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.dispatched, b.dispatched), cmp.Compare(a.turn.answer.id, b.turn.answer.id))
	})
	return calls
}

// faults plans what goes wrong, the same for every policy.
func (r *run) faults(random *rand.Rand, every float64) {
	if every <= 0 {
		return
	}
	for at := random.ExpFloat64() * every; at < r.to; at += random.ExpFloat64() * every {
		n := r.nodes[random.IntN(len(r.nodes))]
		kind := random.IntN(6)
		r.after(at, func() { r.fault(n, kind) })
	}
}

// fault strikes a node that is well; half of the faults make a straggler.
func (r *run) fault(n *node, kind int) {
	if n.engine.down || n.engine.frozen || n.engine.slow > 1 || n.drained {
		return
	}
	switch kind {
	case 0:
		n.engine.crash()
		r.after(crashedFor, func() { r.comeBack(n) })
	case 1:
		n.engine.freeze()
		n.frozenAt = r.now
		r.feel(n, n.engine.life)
		r.after(frozenFor, func() {
			n.engine.crash()
			r.after(crashedFor-frozenFor, func() { r.comeBack(n) })
		})
	case 2:
		r.drain(n, true)
		r.after(drainedFor, func() { r.drain(n, false) })
	default:
		n.engine.slowDown(stragglerBy)
		r.after(stragglerFor, func() { n.engine.slowDown(1) })
	}
}

func (r *run) drain(n *node, drained bool) {
	n.drained, r.changed = drained, true
	must(r.shared.Drain(context.Background(), n.id, drained))
}

// comeBack registers a node again.
func (r *run) comeBack(n *node) {
	n.engine.restart()
	r.register(n)
	r.after(n.engine.startup, func() { r.beat(n) })
}

// foreigners send their requests past the gateways.
func (r *run) foreigners(random *rand.Rand) {
	taken := map[string]int{}
	for _, n := range r.nodes {
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
