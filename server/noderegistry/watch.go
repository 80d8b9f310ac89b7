package noderegistry

import (
	"context"
	"log/slog"
	"strings"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
)

// lookTimeout bounds one look, so that a pool that hangs shows as one that does not answer.
const lookTimeout = 5 * time.Second

// WatchOptions is what a Watch needs.
type WatchOptions struct {
	Nodes pool.Nodes
	// Every is the time between two looks, and TTL how long a node that is not heard of is not offline yet.
	Every, TTL time.Duration
	// Changed, if set, is told of each change of a node's state; NODE_STATE_UNSPECIFIED is that of a node that is not there.
	Changed func(nodeID string, from, to ktmsv1.NodeState)
	// Counted, if set, is told after each look how many nodes are in each state; nil while the pool does not answer.
	Counted func(map[ktmsv1.NodeState]int)
	Log     *slog.Logger
}

// Watch follows the states of the nodes. It decides nothing: states are judged wherever nodes are chosen. It makes their
// changes known, once for each replica.
type Watch struct {
	options WatchOptions
	seen    map[string]ktmsv1.NodeState
	// away says that the pool did not answer at the last look.
	away bool
}

// NewWatch returns a Watch that has seen nothing yet.
func NewWatch(options WatchOptions) *Watch {
	return &Watch{options: options, seen: map[string]ktmsv1.NodeState{}}
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(w.options.Every)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *Watch) look(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	fleet, err := w.options.Nodes.Fleet(asking)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.failed(ctx, err)
		return
	}
	if w.away {
		w.away = false
		w.options.Log.InfoContext(ctx, "the pool of nodes answers again")
	}
	now := make(map[string]ktmsv1.NodeState, len(fleet.Nodes))
	counts := map[ktmsv1.NodeState]int{}
	for i := range fleet.Nodes {
		node := &fleet.Nodes[i]
		health, reason := node.Health(fleet.Now, w.options.TTL)
		state := stateOf(health)
		now[node.ID] = state
		counts[state]++
		w.note(ctx, node.ID, w.seen[node.ID], state, reason)
	}
	for id, state := range w.seen {
		if _, there := now[id]; !there {
			w.note(ctx, id, state, ktmsv1.NodeState_NODE_STATE_UNSPECIFIED, "it left, was removed, or was not heard of for long")
		}
	}
	w.seen = now
	if w.options.Counted != nil {
		w.options.Counted(counts)
	}
}

// failed keeps what was seen: nodes do not change because nobody can look at them.
func (w *Watch) failed(ctx context.Context, err error) {
	if !w.away {
		w.away = true
		w.options.Log.WarnContext(ctx, "the pool of nodes does not answer, so that no local model serves", "error", err)
	}
	if w.options.Counted != nil {
		w.options.Counted(nil)
	}
}

// StateName is a state as logs and metrics spell it: healthy, suspect, circuit_broken, draining, offline; absent for a node
// that is not there.
func StateName(state ktmsv1.NodeState) string {
	if state == ktmsv1.NodeState_NODE_STATE_UNSPECIFIED {
		return "absent"
	}
	return strings.ToLower(strings.TrimPrefix(state.String(), "NODE_STATE_"))
}

func (w *Watch) note(ctx context.Context, id string, from, to ktmsv1.NodeState, reason string) {
	if from == to {
		return
	}
	level := slog.LevelInfo
	switch to {
	case ktmsv1.NodeState_NODE_STATE_OFFLINE, ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN, ktmsv1.NodeState_NODE_STATE_SUSPECT:
		level = slog.LevelWarn
	default:
	}
	w.options.Log.LogAttrs(ctx, level, "a node's state changed", slog.String("node", id), slog.String("from", StateName(from)),
		slog.String("to", StateName(to)), slog.String("reason", reason))
	if w.options.Changed != nil {
		w.options.Changed(id, from, to)
	}
}
