package memory

import (
	"context"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// Choose implements pool.Nodes.
func (n *Nodes) Choose(ctx context.Context, c pool.Choosing) (pool.Chosen, error) {
	now, err := n.begin(ctx)
	if err != nil {
		return pool.Chosen{}, err
	}
	defer n.mu.Unlock()
	n.prefixes.sweep(now)
	candidates, occupied := n.candidates(c, now)
	choice := selection.Choose(candidates, c.Prompt, c.Policy)
	if choice.Chosen < 0 {
		return pool.Chosen{Occupied: occupied}, nil
	}
	var turns []string
	var weights []int64
	for i, weighed := range choice.Weighed {
		if weighed.Shortlisted {
			turns, weights = append(turns, candidates[i].Node), append(weights, weighed.Current)
		}
	}
	n.turns.keep(c.Model, turns, weights, now)
	chosen := candidates[choice.Chosen]
	known := n.nodes[chosen.Node]
	_, trial := known.circuit.admits(now)
	lease := &pool.Lease{
		ID: c.ID, Node: chosen.Node, Model: c.Model,
		Matched: chosen.Matched, Queued: c.Prompt - chosen.Matched, Ahead: known.queued,
		Turn: known.circuit.turn, Trial: trial,
	}
	known.take(c.ID, slot{ends: after(now, c.TTL), queued: lease.Queued})
	if trial {
		known.circuit.probe = c.ID
	}
	n.prefixes.record(c.Prefixes, c.Contenders[choice.Chosen].Generation, now)
	return pool.Chosen{Lease: lease, Occupied: occupied}, nil
}

// candidates adds to the contenders what the pool knows, and counts the slots that are taken.
func (n *Nodes) candidates(c pool.Choosing, now int64) (candidates []selection.Candidate, occupied int64) {
	current, prompt := n.turns.of(c.Model, now), n.prefixes.of(c.Prefixes)
	candidates = make([]selection.Candidate, 0, len(c.Contenders))
	for _, contender := range c.Contenders {
		candidate := contender.Candidate
		candidate.InFlight, candidate.Queued, candidate.Matched, candidate.Current = 0, 0, 0, 0
		admitted := false
		if known := n.nodes[candidate.Node]; known != nil {
			load := known.load(now)
			candidate.InFlight, candidate.Queued = load.InFlight, load.Queued
			if contender.Paced {
				candidate.InFlight += load.Idle
			}
			candidate.Current = current[candidate.Node]
			candidate.Matched = min(matched(prompt, contender.Generation, now), c.Prompt)
			admitted, _ = known.circuit.admits(now)
		}
		if !admitted {
			candidate.Slots = 0
		}
		occupied += candidate.Occupied()
		candidates = append(candidates, candidate)
	}
	return candidates, occupied
}
