package routing

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ai-process/ktms/server/status"
)

// What a caller is told when no model is kept. The texts name models, vendors and the caller's own rule: never a
// model that its policy hides, another tenant, or a credential.

// maxListed bounds how many models of a long chain a text goes through.
const maxListed = 5

func (t *Table) unconfigured(q *Query) error {
	switch {
	case len(t.byID) == 0:
		return status.New(status.NotConfigured, "no models configured yet; an administrator adds them with UpsertModel, "+
			"and rules that use them with ReplaceRules")
	case q.Model == "" && !t.routable:
		return status.New(status.NotConfigured, "no rules configured yet, or none is enabled; an administrator sets them "+
			"with ReplaceRules; until then, name a model")
	default:
		return nil
	}
}

func unknownModel(id string) error {
	err := status.New(status.ModelNotFound,
		"model %q is not in the catalogue; GET /v1/models or ListModels lists those that this key can use", id)
	err.Param = "model"
	return err
}

// noRule happens to calls of a modality only: text has its catch-alls.
func noRule(q *Query) error {
	return status.New(status.NoCapableModel, "no rule leads %s calls to a model; an administrator adds one with the "+
		"attribute modality=%s", q.Modality, q.Modality)
}

// The stages that a candidate passes, in their order. A call fails with the reason of the latest stage that any of
// its candidates reached: what ended the others earlier would not have helped.
const (
	stageCatalogue = iota
	stageKeyPolicy
	stageTeamPolicy
	stageVendorKey
	stageAbility
	stageContext
	stageHealth
)

func stage(d Drop) int {
	switch d {
	case DropKeyPolicy:
		return stageKeyPolicy
	case DropTeamPolicy:
		return stageTeamPolicy
	case DropNoVendorKey:
		return stageVendorKey
	case DropEffort, DropCapability, DropPlacement, DropUnspoken:
		return stageAbility
	case DropContext:
		return stageContext
	case DropCircuitOpen, DropVendorPaused, DropNoNode:
		return stageHealth
	default:
		return stageCatalogue
	}
}

// refuse explains a plan without a kept candidate.
func refuse(p *Plan, q *Query) error {
	last := stageCatalogue
	for i := range p.Candidates {
		last = max(last, stage(p.Candidates[i].Drop))
	}
	switch last {
	case stageKeyPolicy:
		return notAllowed(q, "key")
	case stageTeamPolicy:
		return notAllowed(q, "team")
	case stageVendorKey:
		return noVendorKey(p)
	case stageContext:
		return tooLong(p, q)
	case stageHealth:
		return unavailable(p)
	default:
		return status.New(status.NoCapableModel, "%s serve this request: %s", none(p), reasons(p, stageCatalogue))
	}
}

func notAllowed(q *Query, whose string) error {
	if q.Model != "" {
		err := status.New(status.ModelNotAllowed, "model %q not allowed for %s", q.Model, whose)
		err.Param = "model"
		return err
	}
	return status.New(status.ModelNotAllowed, "no models in chain allowed for %s", whose)
}

func noVendorKey(p *Plan) error {
	var lacking []string
	for i := range p.Candidates {
		c := &p.Candidates[i]
		if c.Drop == DropNoVendorKey && !slices.Contains(lacking, c.Target.Vendor) {
			lacking = append(lacking, c.Target.Vendor)
		}
	}
	return status.New(status.NoVendorKey, "%s be called: the key holds no credential for %s; an administrator "+
		"assigns one with SetVendorKey", none(p), strings.Join(lacking, ", "))
}

// tooLong is the answer as soon as a shorter request would have been served: clients react to it by shortening.
func tooLong(p *Plan, q *Query) error {
	var longest int64
	for i := range p.Candidates {
		if c := &p.Candidates[i]; c.Drop == DropContext {
			longest = max(longest, c.Spec.GetContextLength())
		}
	}
	return status.New(status.ContextTooLong,
		"the maximum context length is %d tokens, but prompt and answer need about %d", longest, q.Tokens)
}

// unavailable promises a wait only when nothing but pauses is in the way: a model that failed for another reason may
// serve the very next call.
func unavailable(p *Plan) error {
	err := status.New(status.VendorsUnavailable, "%s be reached at the moment: %s", none(p), reasons(p, stageHealth))
	for i := range p.Candidates {
		switch c := &p.Candidates[i]; c.Drop {
		case DropCircuitOpen, DropNoNode:
			err.RetryAfter = 0
			return err
		case DropVendorPaused:
			if err.RetryAfter == 0 || c.Wait < err.RetryAfter {
				err.RetryAfter = c.Wait
			}
		}
	}
	return err
}

// none starts a sentence about the whole chain.
func none(p *Plan) string {
	if p.Rule == "" {
		return "the named model cannot"
	}
	return "no model of rule " + strconv.Quote(p.Rule) + " can"
}

// reasons says of each candidate that reached the stage why it was dropped. Policy's drops are left out: what a key
// may not call, its holder need not know.
func reasons(p *Plan, from int) string {
	var parts []string
	more := 0
	for i := range p.Candidates {
		c := &p.Candidates[i]
		if s := stage(c.Drop); s < from || s == stageKeyPolicy || s == stageTeamPolicy {
			continue
		}
		if len(parts) == maxListed {
			more++
			continue
		}
		parts = append(parts, c.Target.Model+" "+c.Detail)
	}
	if more > 0 {
		parts = append(parts, "and "+strconv.Itoa(more)+" more")
	}
	return strings.Join(parts, "; ")
}
