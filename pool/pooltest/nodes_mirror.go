package pooltest

import (
	"math"
	"slices"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// nodesKept is how long the pools under test keep a node that is not heard of.
const nodesKept = 24 * time.Hour

// mirror says what a pool of nodes has to know. It keeps no counters: every figure is summed up from the leases there are.
type mirror struct {
	clock *Clock
	nodes map[string]*mirrored
	// lent are all leases that ever were, in their order.
	lent []*lent
	// current are the current weights by model and node, and asked is when a model was last chosen for.
	current map[string]map[string]int64
	asked   map[string]time.Time
	// held is until when a generation holds a prefix.
	held map[holding]time.Time
}

type holding struct {
	key        selection.Key
	generation string
}

// mirrored is one registration after the other of a node, up to its removal.
type mirrored struct {
	// shown is the node as the fleet shows it.
	shown          pool.Node
	speeds         map[string]pool.Speed
	failures, turn int64
	idle           []time.Time
}

// lent is a lease, whatever became of it.
type lent struct {
	pool.Lease
	on   *mirrored
	ends time.Time
	// queued is what it gives back. Each lease has at most one that is of the probe.
	queued         int64
	probe          bool
	given          bool
	restored       bool
	crashed        bool
	releasedAt     time.Time
	begun, renewed bool
}

func newMirror(clock *Clock) *mirror {
	return &mirror{
		clock: clock, nodes: map[string]*mirrored{}, current: map[string]map[string]int64{}, asked: map[string]time.Time{},
		held: map[holding]time.Time{},
	}
}

// rounded is when something ends that lives for ttl from now: a whole millisecond.
func (m *mirror) rounded(ttl time.Duration) time.Time {
	end := m.clock.Now().Add(ttl)
	if down := end.Truncate(time.Millisecond); !down.Equal(end) {
		return down.Add(time.Millisecond)
	}
	return end
}

// over reports whether what ends then has ended.
func (m *mirror) over(ends time.Time) bool {
	return !ends.After(m.clock.Now().Truncate(time.Millisecond))
}

// node is a node that is registered, or nil.
func (m *mirror) node(id string) *mirrored {
	n := m.nodes[id]
	if n != nil && m.clock.Now().Sub(n.shown.HeartbeatAt) >= nodesKept {
		delete(m.nodes, id)
		return nil
	}
	return n
}

func (m *mirror) live(l *lent) bool { return m.node(l.Node) == l.on && !l.given && !m.over(l.ends) }

// leases are those on a node.
func (m *mirror) leases(n *mirrored) []*lent {
	var live []*lent
	for _, l := range m.lent {
		if l.on == n && m.live(l) {
			live = append(live, l)
		}
	}
	return live
}

// load is where a node stands.
func (m *mirror) load(id, model string) pool.NodeLoad {
	n := m.node(id)
	if n == nil {
		return pool.NodeLoad{}
	}
	load := pool.NodeLoad{Failures: n.failures, Current: m.currentOf(model)[id]}
	for _, l := range m.leases(n) {
		load.InFlight++
		load.Queued += l.queued
		load.Probing = load.Probing || l.probe
	}
	for _, ends := range n.idle {
		if !m.over(ends) {
			load.Idle++
		}
	}
	return load
}

func (m *mirror) currentOf(model string) map[string]int64 {
	if m.clock.Now().Sub(m.asked[model]) >= pool.TurnMemory {
		return nil
	}
	return m.current[model]
}

func (m *mirror) holds(key selection.Key, generation string) bool {
	return m.clock.Now().Before(m.held[holding{key, generation}])
}

func (m *mirror) register(spec pool.NodeSpec, report pool.NodeReport) {
	n := m.node(spec.ID)
	if n == nil {
		n = &mirrored{speeds: map[string]pool.Speed{}, turn: m.clock.Now().UnixMicro()}
		m.nodes[spec.ID] = n
	} else if n.shown.Endpoint != spec.Endpoint {
		n.speeds = map[string]pool.Speed{}
		n.failures, n.shown.OpenedAt = 0, time.Time{}
		n.turn++
		for _, l := range m.lent {
			l.probe = l.probe && l.on != n
		}
	}
	n.shown.NodeSpec, n.shown.RegisteredAt = spec, m.clock.Now()
	m.beat(n, report)
}

func (m *mirror) beat(n *mirrored, report pool.NodeReport) {
	if n.shown.Level != report.Level {
		n.idle = nil
	}
	n.shown.NodeReport = report
	n.shown.HeartbeatAt, n.shown.HeardAt = m.clock.Now(), m.clock.Now()
	n.shown.Counted = int64(len(m.leases(n)))
	n.shown.Speeds = map[string]pool.Speed{}
	for model, speed := range n.speeds {
		n.shown.Speeds[model] = speed
	}
}

// unloads reports whether a report has a model no more that was in memory.
func unloads(before, after pool.NodeReport) bool {
	for _, was := range before.Models {
		if i := slices.IndexFunc(after.Models, func(is pool.NodeModel) bool { return is.ID == was.ID }); was.Warm && (i < 0 || !after.Models[i].Warm) {
			return true
		}
	}
	return false
}

// choose is what a choice has to come to.
func (m *mirror) choose(c pool.Choosing) pool.Chosen {
	now := m.clock.Now()
	candidates := make([]selection.Candidate, 0, len(c.Contenders))
	occupied := int64(0)
	trials := make([]bool, len(c.Contenders))
	for i, contender := range c.Contenders {
		candidate := contender.Candidate
		load := m.load(candidate.Node, c.Model)
		candidate.InFlight, candidate.Queued, candidate.Current, candidate.Matched = load.InFlight, load.Queued, load.Current, 0
		if contender.Paced {
			candidate.InFlight += load.Idle
		}
		for _, prefix := range c.Prefixes {
			if m.holds(prefix.Key, contender.Generation) {
				candidate.Matched = min(prefix.Tokens, c.Prompt)
			}
		}
		occupied += candidate.InFlight + max(candidate.External, 0)
		n := m.node(candidate.Node)
		trials[i] = n != nil && !n.shown.OpenedAt.IsZero()
		if n == nil || trials[i] && (load.Probing || now.Sub(n.shown.OpenedAt) < pool.BreakCooldown) {
			candidate.Slots = 0
		}
		candidates = append(candidates, candidate)
	}
	choice := selection.Choose(candidates, c.Prompt, c.Policy)
	if choice.Chosen < 0 {
		return pool.Chosen{Occupied: occupied}
	}
	if m.currentOf(c.Model) == nil {
		m.current[c.Model] = map[string]int64{}
	}
	m.asked[c.Model] = now
	for i, w := range choice.Weighed {
		if w.Shortlisted {
			m.current[c.Model][candidates[i].Node] = w.Current
		}
	}
	chosen := candidates[choice.Chosen]
	n := m.nodes[chosen.Node]
	lease := pool.Lease{
		ID: c.ID, Node: chosen.Node, Model: c.Model, Matched: chosen.Matched, Queued: c.Prompt - chosen.Matched, Ahead: chosen.Queued,
		Turn: n.turn, Trial: trials[choice.Chosen],
	}
	m.lent = append(m.lent, &lent{Lease: lease, on: n, ends: m.rounded(c.TTL), queued: lease.Queued, probe: lease.Trial})
	for _, prefix := range c.Prefixes {
		m.held[holding{prefix.Key, c.Contenders[choice.Chosen].Generation}] = now.Add(pool.PrefixMemory)
	}
	return pool.Chosen{Lease: &lease, Occupied: occupied}
}

// remembered reports whether a lease was released lately.
func (m *mirror) remembered(l *lent) bool {
	return !l.releasedAt.IsZero() && m.clock.Now().Sub(l.releasedAt) < pool.ReleaseMemory
}

// renew reports whether there is a lease after a renewal.
func (m *mirror) renew(l *lent, restore bool, ttl time.Duration) bool {
	if !m.live(l) {
		n := m.node(l.Node)
		if !restore || n == nil || m.remembered(l) {
			return false
		}
		l.on, l.given, l.restored, l.queued, l.probe = n, false, true, 0, false
	}
	l.ends = m.rounded(ttl)
	return true
}

func (m *mirror) release(l *lent, r pool.Release) {
	if m.remembered(l) {
		return
	}
	l.releasedAt = m.clock.Now()
	n := m.node(l.Node)
	if n == nil {
		return
	}
	if m.live(l) && r.Idle > 0 {
		n.idle = append(n.idle, m.rounded(r.Idle))
	}
	l.given = true
	if l.Turn == n.turn {
		switch r.Outcome {
		case pool.Succeeded:
			if n.failures = 0; !n.shown.OpenedAt.IsZero() {
				n.shown.OpenedAt = time.Time{}
				n.turn++
			}
		case pool.Failed:
			if n.failures++; n.failures >= pool.BreakAfter || l.Trial {
				n.shown.OpenedAt = m.clock.Now()
				n.turn++
			}
		}
	}
	before := n.speeds[l.Model]
	after := pool.Speed{TTFT: learned(before.TTFT, r.Measured.TTFT), TPS: learned(before.TPS, r.Measured.TPS)}
	if after != before {
		n.speeds[l.Model] = after
	}
}

func learned(known, x float64) float64 {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0) || x <= 0:
		return known
	case known == 0:
		return x
	}
	return moved(known, x)
}
