package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
)

const (
	model = "m"

	// The spec's figures, in seconds.
	heartbeatEvery = 5.0
	heartbeatTTL   = 15.0
)

// epoch is the instant 0 of a run.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func instant(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

// node is a machine with its agent.
type node struct {
	id     string
	weight int64
	engine *engine
	calls  map[*attempt]bool
	// frozenAt is when it froze last; asked: somebody is finding out whether it lives.
	frozenAt float64
	asked    bool
	drained  bool
}

// newPool returns what the gateways share, the pool that production uses for one gateway, and the nodes by their ids.
func newPool(c *clock, under setting) (*memory.Nodes, []*node) {
	shared := memory.NewNodes(memory.NodesOptions{Now: func() time.Time { return instant(c.now) }})
	var nodes []*node
	for _, m := range fleet {
		weight := int64(selection.DefaultBaseWeight)
		if under.weighted {
			weight = 10 * m.slots
		}
		for i := range m.count {
			nodes = append(nodes, &node{
				id: fmt.Sprintf("%s-%d", m.name, i), weight: weight, engine: newEngine(m, c), calls: map[*attempt]bool{},
			})
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.id, b.id) })
	return shared, nodes
}

// must is for calls that fail only when the simulation is wrong.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (r *run) register(n *node) {
	r.changed = true
	must(r.shared.Register(context.Background(), pool.NodeSpec{
		ID: n.id, Name: n.id, BaseWeight: n.weight, MaxConcurrent: n.engine.slots,
	}, n.report(r.now)))
}

// beat sends a heartbeat, unless nobody is there to send it.
func (r *run) beat(n *node) {
	if n.engine.down || n.engine.frozen {
		return
	}
	r.changed = true
	_, _, err := r.shared.Beat(context.Background(), n.id, n.report(r.now))
	must(err)
}

// report is what the agent reads off the engine's metrics.
func (n *node) report(now float64) pool.NodeReport {
	active, waiting := n.engine.running, int64(len(n.engine.waiting))
	return pool.NodeReport{
		Level: selection.FullLevel, Active: &active, Waiting: &waiting,
		Models: []pool.NodeModel{{ID: model, Warm: now >= n.engine.warmAt, Context: int64(n.engine.context)}},
	}
}
