package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ai-process/ktms/pool/selection"
)

const (
	model = "m"

	// The spec's figures, in seconds.
	heartbeatEvery = 5.0
	heartbeatTTL   = 15.0
	cooldown       = 30.0
	failuresToOpen = 5
	queueTimeout   = 2.0
	prefixTTL      = 600.0

	// measured is how much of a new measurement goes into speeds and service times.
	measured = 0.1
)

// shared is what the gateways share through Redis.
type shared struct {
	nodes []*nodeState
	// holders says when which node's belief to hold a prefix ends.
	holders map[selection.Key][]belief
	// waiting and service are for the estimate of waits: requests in line, and seconds per request.
	waiting int64
	service float64
}

type belief struct {
	node  *nodeState
	life  int
	until float64
}

// nodeState is a node as Redis knows it.
type nodeState struct {
	index  int
	id     string
	weight int64
	engine *engine

	// As of the last heartbeat.
	heartbeat        float64
	active, external int64
	warm, draining   bool

	inFlight, queued, current int64
	tps, ttft                 float64
	failures                  int
	brokenUntil               float64
	trial                     bool // one is on its way
	// life ends all beliefs about prefixes when it changes.
	life  int
	calls map[*attempt]bool
}

func newShared(c *clock, under setting) *shared {
	s := &shared{holders: map[selection.Key][]belief{}, service: 8}
	for _, m := range fleet {
		weight := int64(selection.DefaultBaseWeight)
		if under.weighted {
			weight = 10 * m.slots
		}
		for i := range m.count {
			s.nodes = append(s.nodes, &nodeState{
				index: len(s.nodes), id: fmt.Sprintf("%s-%d", m.name, i), weight: weight, engine: newEngine(m, c), heartbeat: -heartbeatTTL - 1,
				calls: map[*attempt]bool{},
			})
		}
	}
	slices.SortFunc(s.nodes, func(a, b *nodeState) int { return cmp.Compare(a.id, b.id) })
	for i, n := range s.nodes {
		n.index = i
	}
	return s
}

// beat writes a heartbeat, unless nobody is there to send it.
func (n *nodeState) beat(now float64) {
	if n.engine.down || n.engine.frozen {
		return
	}
	n.heartbeat = now
	n.active = n.engine.active()
	n.external = selection.External(n.active, n.inFlight)
	n.warm = now >= n.engine.warmAt
}

func (n *nodeState) health(now float64) selection.Health {
	switch {
	case now-n.heartbeat > heartbeatTTL:
		return selection.Offline
	case n.draining:
		return selection.Draining
	case n.failures >= failuresToOpen && (now < n.brokenUntil || n.trial):
		return selection.Broken
	case n.failures >= failuresToOpen:
		return selection.Trial
	}
	return selection.Healthy
}

// failed counts a failure for the breaker.
func (n *nodeState) failed(now float64) {
	if n.failures++; n.failures >= failuresToOpen {
		n.brokenUntil, n.trial = now+cooldown, false
	}
}

// views are the nodes as a gateway sees them, with what it has learned itself.
func (s *shared) views(now float64, paces []selection.Pace, reported bool) []selection.Node {
	views := make([]selection.Node, len(s.nodes))
	models := make([]selection.Model, len(s.nodes))
	for i, n := range s.nodes {
		models[i] = selection.Model{
			ID: model, Warm: n.warm, Context: int64(n.engine.context),
			TokensPerSecond: n.tps, TTFTSeconds: n.ttft, SecondsPerToken: float64(paces[i]),
		}
		views[i] = selection.Node{
			ID: n.id, Health: n.health(now), Models: models[i : i+1], BaseWeight: n.weight,
			MaxConcurrency: n.engine.slots, Level: selection.FullLevel, External: n.external,
		}
		if reported {
			views[i].External = max(n.active-n.inFlight, 0)
		}
	}
	return views
}

// matched is how many tokens of a prompt each node is believed to hold.
func (s *shared) matched(prefixes []selection.Prefix, now float64) []int64 {
	matched := make([]int64, len(s.nodes))
	for _, p := range prefixes {
		for _, b := range s.holders[p.Key] {
			if b.until >= now && b.life == b.node.life {
				matched[b.node.index] = p.Tokens
			}
		}
	}
	return matched
}

// believe notes that a node is going to hold a prompt.
func (s *shared) believe(n *nodeState, prefixes []selection.Prefix, now float64) {
	for _, p := range prefixes {
		kept := slices.DeleteFunc(s.holders[p.Key], func(b belief) bool { return b.node == n || b.until < now })
		s.holders[p.Key] = append(kept, belief{n, n.life, now + prefixTTL})
	}
}

// average moves what is known towards a new measurement.
func average(known, value float64) float64 {
	if known == 0 {
		return value
	}
	return known + measured*(value-known)
}
