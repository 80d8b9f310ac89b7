package memory

import (
	"maps"
	"math"
	"time"

	"github.com/ai-process/ktms/pool"
)

// node is one machine: what it said, what was measured, and who has its slots. Instants are in microseconds, the ends of
// slots in whole milliseconds.
type node struct {
	spec                  pool.NodeSpec
	report                pool.NodeReport
	registered, heartbeat int64
	counted               int64
	drained               bool
	generation            string
	// speeds are those measured so far, shown those of the last heartbeat. What is shown is replaced, never changed.
	speeds, shown map[string]pool.Speed

	circuit circuit
	leases  map[pool.ID]slot
	// idle are the ends of slots that are held idle.
	idle map[pool.ID]int64
	// queued is the sum of what the leases have queued.
	queued int64
	// soonest is not later than the end of any slot, so that they are looked through only when one may be over.
	soonest int64
}

// slot is a lease on a node: when it ends, and what it gives back then.
type slot struct {
	ends   int64
	queued int64
}

// newNode begins a node. Its turns begin with the time, so that calls to one of the same name, which is gone, say nothing of it.
func newNode(now int64) *node {
	return &node{
		speeds: map[string]pool.Speed{}, circuit: circuit{turn: now}, leases: map[pool.ID]slot{}, idle: map[pool.ID]int64{},
		soonest: math.MaxInt64,
	}
}

// beat takes a report in.
func (n *node) beat(report pool.NodeReport, now int64) {
	n.heal(now)
	if report.Level != n.report.Level {
		clear(n.idle)
	}
	n.report, n.heartbeat, n.counted = report, now, int64(len(n.leases))
	n.shown = maps.Clone(n.speeds)
}

// moved forgets what was learned of the endpoint that the node had.
func (n *node) moved() {
	n.circuit.restart()
	clear(n.speeds)
}

// view is what the fleet shows.
func (n *node) view() pool.Node {
	view := pool.Node{
		NodeSpec: n.spec, NodeReport: n.report,
		RegisteredAt: instant(n.registered), HeartbeatAt: instant(n.heartbeat), HeardAt: instant(n.heartbeat),
		Counted: n.counted, Drained: n.drained, Generation: n.generation, Speeds: n.shown,
	}
	if n.circuit.open {
		view.OpenedAt = instant(n.circuit.opened)
	}
	return view
}

// load is where the node stands, but for its turn.
func (n *node) load(now int64) pool.NodeLoad {
	n.heal(now)
	return pool.NodeLoad{
		InFlight: int64(len(n.leases)), Idle: int64(len(n.idle)), Queued: n.queued,
		Failures: n.circuit.failures, Probing: n.circuit.probe != "",
	}
}

// heal ends the slots whose time is over.
func (n *node) heal(now int64) {
	millis := now / microsPerMilli
	if millis < n.soonest {
		return
	}
	n.soonest = math.MaxInt64
	for id, s := range n.leases {
		if s.ends <= millis {
			n.free(id)
			n.circuit.endProbe(id)
		} else {
			n.soonest = min(n.soonest, s.ends)
		}
	}
	for id, ends := range n.idle {
		if ends <= millis {
			delete(n.idle, id)
		} else {
			n.soonest = min(n.soonest, ends)
		}
	}
}

// setBack lets slots end by so many microseconds sooner, by which the clock was set back.
func (n *node) setBack(by int64) {
	millis := by / microsPerMilli
	for id, s := range n.leases {
		s.ends -= millis
		n.leases[id] = s
	}
	for id := range n.idle {
		n.idle[id] -= millis
	}
	n.soonest = math.MinInt64 // which heal finds
}

// take makes a lease.
func (n *node) take(id pool.ID, s slot) {
	n.leases[id] = s
	n.queued += s.queued
	n.soonest = min(n.soonest, s.ends)
}

// free ends a lease, which gives back what it has queued. It reports whether there was one.
func (n *node) free(id pool.ID) bool {
	s, found := n.leases[id]
	n.queued -= s.queued
	delete(n.leases, id)
	return found
}

// rest holds a slot idle.
func (n *node) rest(id pool.ID, ends int64) {
	n.idle[id] = ends
	n.soonest = min(n.soonest, ends)
}

// learn averages a measurement.
func (n *node) learn(model string, measured pool.Speed) {
	known := n.speeds[model]
	learned := pool.Speed{TTFT: average(known.TTFT, measured.TTFT), TPS: average(known.TPS, measured.TPS)}
	if learned != known {
		n.speeds[model] = learned
	}
}

// average moves what is known towards a new value. The product is converted, so that no machine fuses it with the sum.
func average(known, x float64) float64 {
	switch {
	case !(x > 0) || math.IsInf(x, 1):
		return known
	case known == 0:
		return x
	}
	return known + float64(pool.SpeedGain*(x-known))
}

const microsPerMilli = 1000

// after is the end of what begins now and lives for ttl, in milliseconds, rounded up.
func after(now int64, ttl time.Duration) int64 {
	return (now + ttl.Microseconds() + microsPerMilli - 1) / microsPerMilli
}
