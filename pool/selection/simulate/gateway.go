package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
)

const (
	// maxOutput is the limit on the answer's tokens that requests come with.
	maxOutput = 1024
	// lease is longer than any call: gateways that live renew theirs, and here all do.
	lease = time.Hour
	// minSpeedTokens is from how many tokens on an answer tells how quickly a node writes.
	minSpeedTokens = 8
	// The cloud, where requests spill to.
	cloudTTFT, cloudTPS = 0.6, 60
)

// run is one policy under one workload.
type run struct {
	clock
	shared   *memory.Nodes
	nodes    []*node
	policy   policy
	workload workload
	gateways [gateways]gateway
	random   *rand.Rand // for naps alone
	from, to float64    // requests that arrive within are counted
	outcome  outcome
	leases   int

	ids []string       // of all nodes, in order
	at  map[string]int // where each is
	// known is the fleet as the pool has shown it last, unless it has changed, and views what a choice sees of it.
	known   pool.Fleet
	views   []selection.Node
	changed bool
}

// request is a turn on its way.
type request struct {
	turn    *turn
	gateway *gateway
	arrived float64
	counted bool
	tried   []string
	answer  func() // goes on with the session

	end   float64 // of its patience
	naps  int     // which planned look for a slot counts
	woken bool
}

// attempt is a request on a node.
type attempt struct {
	*request
	node       *node
	lease      pool.Lease
	dispatched float64
	warm       bool // the node was, so that its first token tells its pace
	first      float64
	held       int
	began      bool
	over       bool
	measured   pool.Speed
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
	if s.first < len(s.turns) {
		r.after(s.start-r.now, func() { next(s.first) })
	}
}

func (r *run) arrive(t *turn, answer func()) {
	q := &request{turn: t, gateway: &r.gateways[t.gateway], arrived: r.now, counted: r.now >= r.from && r.now <= r.to, answer: answer}
	if q.counted {
		r.outcome.requests++
	}
	r.visit(q)
}

// visit looks for a node, with all the patience that a request has with each.
func (r *run) visit(q *request) {
	q.end = r.now + r.workload.patience
	r.try(q)
}

// try chooses a node and takes a lease, or waits, or gives up, as vendors/nodes does.
func (r *run) try(q *request) {
	ctx := context.Background()
	fleet := r.fleet()
	candidates, _ := selection.Prepare(r.seenBy(q.gateway, fleet), selection.Query{
		Model: model, PromptTokens: q.turn.estimate, MaxOutputTokens: maxOutput, Tried: q.tried,
	})
	if len(candidates) == 0 {
		r.spill(q)
		return
	}
	asked := candidates
	if r.policy.pick != nil {
		asked = r.picked(candidates, q)
	}
	r.leases++
	choosing := pool.Choosing{
		ID: pool.ID(strconv.Itoa(r.leases)), TTL: lease, Model: model, Prompt: q.turn.estimate, Policy: r.policy.weighs,
	}
	if !r.policy.weighs.Plain {
		choosing.Prefixes = q.turn.prefixes
	}
	choosing.Contenders = make([]pool.Contender, len(asked))
	for i, c := range asked {
		at := r.at[c.Node]
		choosing.Contenders[i] = pool.Contender{
			Candidate: c, Generation: fleet.Nodes[at].Generation, Trial: r.views[at].Health == selection.Trial,
		}
	}
	chosen, err := r.shared.Choose(ctx, choosing)
	must(err)
	if chosen.Lease == nil {
		r.wait(q, fleet, candidates, chosen.Occupied)
		return
	}
	r.leave(q)
	r.dispatch(q, *chosen.Lease, fleet.Nodes[r.at[chosen.Lease.Node]].Models[0].Warm)
}

// ttl is for how long a node is believed to be there without a heartbeat.
const ttl = heartbeatTTL * time.Second

// fleet is what the pool shows of the nodes. Like the gateways of production it is asked again only after a change.
func (r *run) fleet() pool.Fleet {
	if r.changed {
		fleet, err := r.shared.Fleet(context.Background())
		must(err)
		r.known, r.changed = fleet, false
		r.views = r.views[:0]
		for i := range fleet.Nodes {
			r.views = append(r.views, fleet.Nodes[i].Selection(fleet.Now, ttl))
		}
	}
	r.known.Now = instant(r.now)
	return r.known
}

// seenBy are the nodes as a gateway sees them, with what it has learned itself.
func (r *run) seenBy(g *gateway, fleet pool.Fleet) []selection.Node {
	var loads []pool.NodeLoad
	if r.policy.reported {
		loads = r.loads()
	}
	for i := range r.views {
		n, view := &fleet.Nodes[i], &r.views[i]
		view.Health, _ = n.Health(fleet.Now, ttl)
		view.Models[0].SecondsPerToken = float64(g.paces[n.ID])
		if r.policy.reported {
			view.External = max(*n.Active-loads[i].InFlight, 0)
		}
	}
	return r.views
}

// loads are what the nodes are doing now, in the order of their ids.
func (r *run) loads() []pool.NodeLoad {
	loads, err := r.shared.Loads(context.Background(), model, r.ids)
	must(err)
	return loads
}

func (r *run) spill(q *request) {
	r.leave(q)
	if q.counted {
		r.outcome.spilled++
	}
	r.after(cloudTTFT+float64(q.turn.answer.tokens)/cloudTPS, q.answer)
}

func (r *run) dispatch(q *request, taken pool.Lease, warm bool) {
	n := r.nodes[r.at[taken.Node]]
	a := &attempt{request: q, node: n, lease: taken, dispatched: r.now, warm: warm}
	if n.calls[a] = true; int64(len(n.calls)) > n.engine.slots {
		r.outcome.overbooked++
	}
	chain := q.turn.chain
	j := &job{
		chain: chain, answer: chain[len(chain)-1].next(q.turn.answer), output: q.turn.answer.tokens,
		started: func(held int) { r.started(a, held) },
		done:    func() { r.done(a) },
		failed:  func() { r.failed(a) },
	}
	if !n.engine.submit(j) {
		r.failed(a)
		return
	}
	if !q.turn.streamed { // its first token is not seen, so that it is predicted
		if pace := float64(q.gateway.paces[n.id]); pace > 0 {
			r.after(pace*float64(taken.Ahead+taken.Queued), func() { must(r.shared.Begun(context.Background(), taken)) })
		}
	}
}

func (r *run) started(a *attempt, held int) {
	if a.over {
		return
	}
	a.began, a.first, a.held = true, r.now, held
	if !a.turn.streamed {
		return
	}
	r.answering(a)
	must(r.shared.Begun(context.Background(), a.lease))
	if a.warm && !a.lease.Trial {
		ttft := r.now - a.dispatched
		a.measured.TTFT = ttft
		paces := a.gateway.paces
		paces[a.node.id] = paces[a.node.id].Learn(ttft, a.lease.Ahead+a.lease.Queued)
	}
}

// answering counts a first token.
func (r *run) answering(a *attempt) {
	if a.counted {
		r.outcome.ttft = append(r.outcome.ttft, a.first-a.arrived)
		r.outcome.prompt += a.turn.chain[len(a.turn.chain)-1].tokens
		r.outcome.held += a.held
	}
}

func (r *run) done(a *attempt) {
	if a.over {
		return
	}
	switch {
	case !a.turn.streamed:
		r.answering(a)
	case a.turn.answer.tokens >= minSpeedTokens && r.now > a.first:
		a.measured.TPS = float64(a.turn.answer.tokens-1) / (r.now - a.first)
	}
	a.gateway.served(r.now - a.dispatched)
	r.release(a, pool.Succeeded)
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
	r.release(a, pool.Failed)
	if a.began && a.turn.streamed {
		if a.counted {
			r.outcome.broken++
		}
		a.answer()
		return
	}
	a.tried = append(a.tried, a.node.id)
	r.visit(a.request)
}

func (r *run) release(a *attempt, outcome pool.Outcome) {
	a.over = true
	delete(a.node.calls, a)
	if counted := min(r.now, r.to) - max(a.dispatched, r.from); counted > 0 {
		r.outcome.busy += counted
	}
	r.changed = r.changed || outcome == pool.Failed || a.lease.Trial // its circuit may be another
	must(r.shared.Release(context.Background(), pool.Release{Lease: a.lease, Outcome: outcome, Measured: a.measured}))
	r.freed(a.gateway)
}
