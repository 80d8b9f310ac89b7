package memory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// defaultRetention is how long a node is kept that is not heard of. A machine that is off over night is still listed.
const defaultRetention = 24 * time.Hour

// NodesOptions are the settings of Nodes.
type NodesOptions struct {
	// Now is the clock; nil is time.Now. It is called by one goroutine at a time.
	Now func() time.Time
	// Retention is how long a node is kept that is not heard of; 0 = 24 hours.
	Retention time.Duration
}

// Nodes implements pool.Nodes. It is never unavailable. What it is given it keeps, so that specs and reports must not be
// changed afterwards.
type Nodes struct {
	now       func() time.Time
	retention int64

	mu    sync.Mutex
	nodes map[string]*node
	// shown is the fleet as it was told last, and is replaced, never changed; nil = something has changed since.
	shown []pool.Node
	// forgetAt is not later than when the first node has not been heard of for too long.
	forgetAt int64
	// generations counts those that were given out.
	generations int64
	turns       turns
	prefixes    prefixes
	released    *once
}

var _ pool.Nodes = (*Nodes)(nil)

// NewNodes returns Nodes of which none is registered.
func NewNodes(options NodesOptions) *Nodes {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Retention <= 0 {
		options.Retention = defaultRetention
	}
	return &Nodes{
		now:       options.Now,
		retention: options.Retention.Microseconds(),
		nodes:     map[string]*node{},
		forgetAt:  math.MaxInt64,
		turns:     turns{},
		prefixes:  newPrefixes(),
		released:  newOnce(pool.ReleaseMemory),
	}
}

// begin takes the lock, which the caller gives back unless there is an error, and says what time it is.
func (n *Nodes) begin(ctx context.Context) (now int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n.mu.Lock()
	now = n.now().UnixMicro()
	n.forget(now)
	return now, nil
}

// forget drops the nodes that were not heard of for too long.
func (n *Nodes) forget(now int64) {
	if now < n.forgetAt {
		return
	}
	n.forgetAt = math.MaxInt64
	for id, node := range n.nodes {
		if at := node.heartbeat + n.retention; at <= now {
			delete(n.nodes, id)
			n.shown = nil
		} else {
			n.forgetAt = min(n.forgetAt, at)
		}
	}
}

// heard notes a heartbeat.
func (n *Nodes) heard(node *node, report pool.NodeReport, now int64) {
	if node.heartbeat > now {
		node.setBack(node.heartbeat - now)
	}
	node.beat(report, now)
	n.shown = nil
	n.forgetAt = min(n.forgetAt, now+n.retention)
}

// generation makes one that there never was. The instant keeps it apart from those of a process before this one.
func (n *Nodes) generation(id string, now int64) string {
	n.generations++
	return fmt.Sprintf("%s/%d/%d", id, now, n.generations)
}

// Register implements pool.Nodes.
func (n *Nodes) Register(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
	now, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer n.mu.Unlock()
	known := n.nodes[spec.ID]
	switch {
	case known == nil:
		known = newNode(now)
		n.nodes[spec.ID] = known
	case known.spec.Endpoint != spec.Endpoint:
		known.moved()
	}
	known.spec, known.registered = spec, now
	known.generation = n.generation(spec.ID, now)
	n.heard(known, report, now)
	return nil
}

// Beat implements pool.Nodes.
func (n *Nodes) Beat(ctx context.Context, id string, report pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
	now, err := n.begin(ctx)
	if err != nil {
		return pool.Node{}, pool.NodeLoad{}, err
	}
	defer n.mu.Unlock()
	known := n.nodes[id]
	if known == nil {
		return pool.Node{}, pool.NodeLoad{}, unknown(id)
	}
	if cooled(known.report.Models, report.Models) {
		known.generation = n.generation(id, now)
	}
	n.heard(known, report, now)
	return known.view(), known.load(now), nil
}

// cooled reports whether a model has left a node's memory.
func cooled(before, after []pool.NodeModel) bool {
	return slices.ContainsFunc(before, func(was pool.NodeModel) bool {
		return was.Warm && !slices.ContainsFunc(after, func(is pool.NodeModel) bool { return is.Warm && is.ID == was.ID })
	})
}

// Remove implements pool.Nodes.
func (n *Nodes) Remove(ctx context.Context, id, keyID string) (bool, error) {
	if _, err := n.begin(ctx); err != nil {
		return false, err
	}
	defer n.mu.Unlock()
	known := n.nodes[id]
	if known == nil || keyID != "" && known.spec.KeyID != keyID {
		return false, nil
	}
	delete(n.nodes, id)
	n.shown = nil
	return true, nil
}

// Drain implements pool.Nodes.
func (n *Nodes) Drain(ctx context.Context, id string, drained bool) error {
	if _, err := n.begin(ctx); err != nil {
		return err
	}
	defer n.mu.Unlock()
	known := n.nodes[id]
	if known == nil {
		return unknown(id)
	}
	known.drained, n.shown = drained, nil
	return nil
}

// Reseal implements pool.Nodes.
func (n *Nodes) Reseal(ctx context.Context, id string, former, token []byte) (bool, error) {
	if _, err := n.begin(ctx); err != nil {
		return false, err
	}
	defer n.mu.Unlock()
	known := n.nodes[id]
	if known == nil || !slices.Equal(known.spec.Token, former) {
		return false, nil
	}
	known.spec.Token, n.shown = token, nil
	return true, nil
}

// Fleet implements pool.Nodes.
func (n *Nodes) Fleet(ctx context.Context) (pool.Fleet, error) {
	now, err := n.begin(ctx)
	if err != nil {
		return pool.Fleet{}, err
	}
	defer n.mu.Unlock()
	if n.shown == nil {
		n.shown = make([]pool.Node, 0, len(n.nodes))
		for _, known := range n.nodes {
			n.shown = append(n.shown, known.view())
		}
		slices.SortFunc(n.shown, func(a, b pool.Node) int { return strings.Compare(a.ID, b.ID) })
	}
	return pool.Fleet{Now: instant(now), Nodes: n.shown}, nil
}

// Loads implements pool.Nodes.
func (n *Nodes) Loads(ctx context.Context, model string, ids []string) ([]pool.NodeLoad, error) {
	now, err := n.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	current := n.turns.of(model, now)
	loads := make([]pool.NodeLoad, len(ids))
	for i, id := range ids {
		if known := n.nodes[id]; known != nil {
			loads[i] = known.load(now)
			loads[i].Current = current[id]
		}
	}
	return loads, nil
}

// Holders implements pool.Nodes.
func (n *Nodes) Holders(ctx context.Context, held []selection.Prefix, generations []string) ([]bool, error) {
	now, err := n.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	return n.prefixes.holders(held, generations, now), nil
}

func unknown(id string) error { return fmt.Errorf("node %q: %w", id, pool.ErrUnknownNode) }

// instant is the time of so many microseconds, as it is told to others.
func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
