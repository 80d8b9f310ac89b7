package noderegistry

import (
	"context"
	"slices"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server/status"
)

const (
	// DefaultSettled is a little more than a cached Fleet may be old.
	DefaultSettled = 3500 * time.Millisecond
	// settlePoll is how often it is looked at again until then.
	settlePoll = 50 * time.Millisecond
)

// standing is what a run of an agent is to its node.
type standing int

const (
	// speaks: it registered last, or nobody says who did.
	speaks standing = iota
	// replaced: another run has registered since, and lives.
	replaced
	// alone: another run has registered since, and is gone.
	alone
)

// standing tells whether a run of an agent still speaks for its node. Of two that have one id, only the one that registered last speaks for the node: else each would undo what the other says, and the first to
// leave would take the other one out. The Fleet may be older than the registration of the very agent that asks, so that it
// is believed only once it is settled.
func (h *Handler) standing(ctx context.Context, nodeID, instance string) (standing, error) {
	if instance == "" {
		return speaks, nil
	}
	for end := time.Now().Add(h.options.Settled); ; {
		fleet, err := h.options.Nodes.Fleet(ctx)
		if err != nil {
			return speaks, err
		}
		i := slices.IndexFunc(fleet.Nodes, func(n pool.Node) bool { return n.ID == nodeID })
		if i < 0 || fleet.Nodes[i].Instance == "" || fleet.Nodes[i].Instance == instance {
			return speaks, nil
		}
		if health, _ := fleet.Nodes[i].Health(fleet.Now, h.options.TTL); health == selection.Offline {
			return alone, nil
		}
		if !time.Now().Before(end) {
			return replaced, nil
		}
		select {
		case <-time.After(settlePoll):
		case <-ctx.Done():
			return speaks, ctx.Err()
		}
	}
}

// replacedError is what the agent recognises.
func replacedError(nodeID string) error {
	return status.New(status.FailedPrecondition, "another agent has registered node %q since: stop one of the two, or give each "+
		"machine a node id and a key of its own", nodeID)
}
