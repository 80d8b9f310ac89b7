package nodes

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// snapshot is the fleet as a choice for one model sees it.
type snapshot struct {
	fleet pool.Fleet
	// nodes are in the order of the fleet's, with the one model alone.
	nodes []selection.Node
}

// at is a node's place.
func (s *snapshot) at(id string) int {
	return sort.Search(len(s.fleet.Nodes), func(i int) bool { return s.fleet.Nodes[i].ID >= id })
}

// node is one of the fleet's by its id.
func (s *snapshot) node(id string) *pool.Node { return &s.fleet.Nodes[s.at(id)] }

// look reads the fleet, with what this replica has learned of it.
func (v *Vendor) look(ctx context.Context, model string) (*snapshot, error) {
	fleet, err := v.options.Nodes.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	s := &snapshot{fleet: fleet, nodes: make([]selection.Node, len(fleet.Nodes))}
	for i := range fleet.Nodes {
		n := fleet.Nodes[i]
		n.Models = only(n.Models, model)
		s.nodes[i] = n.Selection(fleet.Now, v.options.TTL)
		for j := range s.nodes[i].Models {
			s.nodes[i].Models[j].SecondsPerToken = v.paces.of(n.ID, model)
		}
	}
	return s, nil
}

// only is the one model of a node that a choice looks at. Machines have dozens, and some report a thousand.
func only(models []pool.NodeModel, id string) []pool.NodeModel {
	i := slices.IndexFunc(models, func(m pool.NodeModel) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return models[i : i+1 : i+1]
}

// contenders are the candidates with what the pool needs to know beside.
func (s *snapshot) contenders(candidates []selection.Candidate) []pool.Contender {
	out := make([]pool.Contender, 0, len(candidates))
	for _, c := range candidates {
		i := s.at(c.Node)
		out = append(out, pool.Contender{Candidate: c, Generation: s.fleet.Nodes[i].Generation,
			Trial: s.nodes[i].Health == selection.Trial, Paced: s.fleet.Nodes[i].Level < selection.FullLevel})
	}
	return out
}

// Absent implements vendors.Pool.
func (v *Vendor) Absent(model string) string {
	s, err := v.look(context.Background(), model)
	if err != nil {
		return unknownState
	}
	candidates, verdicts := selection.Prepare(s.nodes, selection.Query{Model: model})
	if len(candidates) > 0 {
		return ""
	}
	return absent(verdicts)
}

// unknownState follows the id of a model.
const unknownState = "cannot be sent to a machine: the pool that keeps their state does not answer"

// absent says why there is nobody, by the machines that have the model at all.
func absent(verdicts []selection.Verdict) string {
	var parts []string
	for verdict := selection.NotAllowed; verdict <= selection.Paused; verdict++ {
		count := 0
		for _, v := range verdicts {
			if v == verdict {
				count++
			}
		}
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", count, verdict))
		}
	}
	if len(parts) == 0 {
		return "has no machine: none in the pool reports it"
	}
	return "has no machine that could serve it now (" + strings.Join(parts, ", ") + ")"
}

// Weigh is how this replica sees each node for a model and a prompt of so many tokens, in the order of their ids.
func (v *Vendor) Weigh(ctx context.Context, model string, prompt, maxOutput int64) ([]pool.Weighing, error) {
	s, err := v.look(ctx, model)
	if err != nil {
		return nil, err
	}
	candidates, verdicts := selection.Prepare(s.nodes, selection.Query{Model: model, PromptTokens: prompt, MaxOutputTokens: maxOutput})
	ids := make([]string, 0, len(candidates))
	for _, c := range candidates {
		ids = append(ids, c.Node)
	}
	loads, err := v.options.Nodes.Loads(ctx, model, ids)
	if err != nil {
		return nil, err
	}
	all := make([]pool.Weighing, 0, len(verdicts))
	for i, verdict := range verdicts {
		n := &s.fleet.Nodes[i]
		all = append(all, pool.Weighing{Node: n.ID, Model: model, Verdict: verdict, Speed: n.Speeds[model],
			SecondsPerToken: v.paces.of(n.ID, model)})
	}
	for i := range candidates {
		c, load := &candidates[i], loads[i]
		c.InFlight, c.Queued, c.Current = load.InFlight, load.Queued, load.Current
		if s.node(c.Node).Level < selection.FullLevel {
			c.InFlight += load.Idle
		}
	}
	// Of a large fleet a call weighs the best alone; here all are shown against each other, in parts that can be weighed.
	for from := 0; from < len(candidates); from += selection.MaxCandidates {
		part := candidates[from:min(from+selection.MaxCandidates, len(candidates))]
		for i, w := range selection.Choose(part, prompt, v.options.Policy).Weighed {
			to := &all[s.at(part[i].Node)]
			to.Verdict, to.Factors, to.Shortlisted = w.Verdict, w.Factors, w.Shortlisted
			to.Weight = float64(w.Weight) / selection.Scale
		}
	}
	return all, nil
}
