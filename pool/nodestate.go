package pool

import (
	"fmt"
	"time"

	"github.com/ai-process/ktms/pool/selection"
)

const (
	// SuspectCelsius is from where a GPU's heat makes its node a last resort.
	SuspectCelsius = 88
	// SuspectUtilization does the same by its load, in percent.
	SuspectUtilization = 98
)

// Health is a node's state at an instant of the pool's clock, and why it is not healthy. Nodes that were not heard of for
// longer than ttl are offline. The states are judged in this order: offline, draining, broken, suspect.
func (n *Node) Health(now time.Time, ttl time.Duration) (selection.Health, string) {
	heard := n.HeartbeatAt
	if n.HeardAt.After(heard) {
		heard = n.HeardAt
	}
	// A heartbeat that is yet to come is from before the clock was set back.
	if silent := now.Sub(heard).Abs(); silent > ttl {
		return selection.Offline, fmt.Sprintf("no heartbeat for %d s", int64(silent/time.Second))
	}
	switch {
	case n.Drained:
		return selection.Draining, "drained by an administrator"
	case n.Draining && n.Trouble != "":
		return selection.Draining, n.Trouble
	case n.Draining:
		return selection.Draining, "the node takes no more requests"
	case n.Trouble != "":
		return selection.Broken, n.Trouble
	case !n.OpenedAt.IsZero() && now.Sub(n.OpenedAt).Abs() < BreakCooldown: // it is yet to come where the clock was set back
		return selection.Broken, fmt.Sprintf("%d requests in a row failed", BreakAfter)
	case !n.OpenedAt.IsZero():
		return selection.Trial, "one request may try whether it has recovered"
	}
	for _, gpu := range n.GPUs {
		if gpu.Celsius != nil && *gpu.Celsius >= SuspectCelsius {
			return selection.Suspect, fmt.Sprintf("a GPU is at %.0f °C", *gpu.Celsius)
		}
	}
	for _, gpu := range n.GPUs {
		if gpu.Utilization != nil && *gpu.Utilization >= SuspectUtilization {
			return selection.Suspect, fmt.Sprintf("a GPU is at %.0f %% utilisation", *gpu.Utilization)
		}
	}
	return selection.Healthy, ""
}

// Selection is the node as a choice sees it, at an instant of the pool's clock.
func (n *Node) Selection(now time.Time, ttl time.Duration) selection.Node {
	health, _ := n.Health(now, ttl)
	out := selection.Node{
		ID: n.ID, Health: health, Allowed: n.AllowedModels, BaseWeight: n.BaseWeight, MaxConcurrency: n.MaxConcurrent, Level: n.Level,
		Models: make([]selection.Model, 0, len(n.Models)),
	}
	if n.Active != nil {
		out.External = selection.External(*n.Active, n.Counted)
	}
	for _, m := range n.Models {
		speed := n.Speeds[m.ID]
		out.Models = append(out.Models, selection.Model{ID: m.ID, Warm: m.Warm, Context: m.Context,
			TokensPerSecond: speed.TPS, TTFTSeconds: speed.TTFT})
	}
	return out
}

// Weighing is how one replica sees a node for one model: what ListNodes and ExplainRoute show.
type Weighing struct {
	Node, Model string
	Verdict     selection.Verdict
	selection.Factors
	// Weight is the product of the factors; 0 = not eligible. Shortlisted nodes take turns.
	Weight      float64
	Shortlisted bool
	Speed       Speed
	// SecondsPerToken is the replica's own; 0 = not known yet.
	SecondsPerToken float64
}
