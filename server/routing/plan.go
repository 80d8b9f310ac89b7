package routing

import (
	"slices"
	"strconv"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// Plan lists the models that may answer the call, in the order in which to try them, and why the others may not.
//
// The plan comes also with an error, which is a *status.Error and means that no model is kept. The first of these
// that holds names the reason to leave a candidate out: unknown or disabled, the key's list, the team's list, no
// credential, effort, capability, placement, context length, open circuit, pause, no machine.
func (t *Table) Plan(c *caller.Caller, q Query, v View) (*Plan, error) {
	p := &Plan{Mode: q.Mode, Effort: q.Effort, Placement: q.Placement, Version: t.version}
	if p.Placement == "" {
		p.Placement = NodesFirst
	}
	if q.Modality != Text {
		p.Effort = ktmsv1.Effort_EFFORT_LOW // what usage and metrics show for a call without effort
	}
	if q.Model != "" {
		p.Mode = ModeOverride
	} else if p.Mode == "" {
		p.Mode = ModeDirect
	}
	if err := q.mistake(p.Placement); err != nil {
		return p, err
	}
	if err := t.unconfigured(&q); err != nil {
		return p, err
	}
	if q.Model != "" {
		return t.override(p, c, &q, v)
	}
	r := t.match(c, &q)
	if r == nil {
		return p, noRule(&q)
	}
	p.Rule = r.name
	return t.fill(p, r.chain, r.first(&q), c, &q, v)
}

func (t *Table) override(p *Plan, c *caller.Caller, q *Query, v View) (*Plan, error) {
	m, known := t.models[q.Model]
	if !known {
		p.Candidates = []Candidate{{
			Target: vendors.Target{Model: q.Model},
			Drop:   DropUnknown,
			Detail: "is not in the catalogue",
		}}
		return p, unknownModel(q.Model)
	}
	return t.fill(p, m.alone, 0, c, q, v)
}

// fill judges every model of the chain.
func (t *Table) fill(p *Plan, chain []*model, first int, c *caller.Caller, q *Query, v View) (*Plan, error) {
	w := t.walk(c, q)
	w.placement = p.Placement
	p.Candidates = make([]Candidate, 0, len(chain))
	kept := false
	walkOrder(chain, first, p.Placement, func(m *model) {
		p.Candidates = append(p.Candidates, w.candidate(m, v))
		kept = kept || p.Candidates[len(p.Candidates)-1].Drop == Kept
	})
	if !kept {
		return p, refuse(p, q)
	}
	return p, nil
}

// mistake finds what makes a query impossible to route. The doors refuse most of it in their callers' own words.
func (q *Query) mistake(p Placement) error {
	switch p {
	case NodesFirst, NodesOnly, CloudFirst, CloudOnly:
	default:
		return invalid("placement", "placement %q is unknown", p)
	}
	switch {
	case q.Model != "":
		return nil
	case q.Modality != Text:
		if !slices.Contains(modalities[:], q.Modality) {
			return invalid("", "modality %q is unknown", q.Modality)
		}
	case q.Effort == ktmsv1.Effort_EFFORT_UNSPECIFIED:
		return invalid("effort", "effort is required unless a model is named or routing is automatic")
	case !slices.Contains(efforts[:], q.Effort):
		return invalid("effort", "effort %d is unknown", q.Effort)
	}
	return nil
}

func invalid(param, format string, args ...any) error {
	err := status.New(status.BadRequest, format, args...)
	err.Param = param
	return err
}

// walk is one call's way through a chain. The view is not in it: calling an interface makes everything that is stored
// beside it escape to the heap, and with it the query of every call.
type walk struct {
	q         *Query
	placement Placement
	held      []credential
	// keyAllows is empty when the key allows any model.
	keyAllows []string
	// teamAllows is nil when the team allows any model, or there is no team.
	teamAllows map[string]struct{}
}

func (t *Table) walk(c *caller.Caller, q *Query) walk {
	w := walk{q: q, held: t.credentials[c.KeyID]}
	if q.Unrestricted {
		return w
	}
	w.keyAllows = c.AllowedModels
	if c.TeamID != "" {
		if tm, known := t.teams[c.TeamID]; known {
			w.teamAllows = tm.allowed
		} else {
			// A key can be newer than this table. Until the table names its team, its list is unknown, and a list that
			// may exist must not be stepped over.
			w.teamAllows = map[string]struct{}{}
		}
	}
	return w
}

func (w *walk) candidate(m *model, v View) Candidate {
	c := Candidate{Spec: m.spec, Target: m.target}
	var held credential
	if held, c.Drop, c.Detail = w.access(m); c.Drop != Kept {
		return c
	}
	c.Target.Key, c.Credential = held.secret, held.fingerprint
	if c.Drop, c.Detail = w.ability(m); c.Drop != Kept {
		return c
	}
	c.Drop, c.Detail, c.Wait = health(m, c.Credential, v)
	return c
}

// access is what the caller's key decides. The credential is zero where the vendor needs none.
func (w *walk) access(m *model) (credential, Drop, string) {
	var none credential
	id := m.target.Model
	if !m.spec.GetEnabled() {
		return none, DropDisabled, "is disabled"
	}
	if len(w.keyAllows) > 0 && !slices.Contains(w.keyAllows, id) {
		return none, DropKeyPolicy, "is not among the models that the key allows"
	}
	if w.teamAllows != nil {
		if _, allowed := w.teamAllows[id]; !allowed {
			return none, DropTeamPolicy, "is not among the models that the team allows"
		}
	}
	if m.keyless {
		return none, Kept, ""
	}
	held, ok := pick(w.held, m.target.Vendor)
	if !ok {
		return none, DropNoVendorKey, m.lacksKey
	}
	return held, Kept, ""
}

// ability is what the request decides.
func (w *walk) ability(m *model) (Drop, string) {
	q := w.q
	if q.Model == "" && q.Modality == Text && !m.serves(q.Effort) {
		return DropEffort, "does not serve " + effortName(q.Effort) + " effort"
	}
	if q.Modality != Text && !slices.Contains(m.target.Capabilities, string(q.Modality)) {
		return DropCapability, "lacks the capability " + string(q.Modality)
	}
	for _, need := range q.Needs {
		if !slices.Contains(m.target.Capabilities, need) {
			return DropCapability, "lacks the capability " + need
		}
	}
	switch {
	case w.placement == NodesOnly && !m.selfHosted:
		return DropPlacement, "runs in the cloud, which nodes_only excludes"
	case w.placement == CloudOnly && m.selfHosted:
		return DropPlacement, "is self-hosted, which cloud_only excludes"
	}
	if limit := m.spec.GetContextLength(); limit > 0 && q.Tokens > limit {
		return DropContext, "takes " + strconv.FormatInt(limit, 10) + " tokens, the request needs about " +
			strconv.FormatInt(q.Tokens, 10)
	}
	return Kept, ""
}

// health is what the moment decides.
func health(m *model, credential string, v View) (Drop, string, time.Duration) {
	if v == nil {
		return Kept, "", 0
	}
	if !v.Speaks(m.target.Vendor) {
		return DropUnspoken, "is of a vendor that this release does not speak to", 0
	}
	if m.target.Vendor == vendors.Local {
		if why := v.Absent(m.target.Model); why != "" {
			return DropNoNode, why, 0
		}
		return Kept, "", 0 // its machines have circuits of their own
	}
	if v.CircuitOpen(m.target.Vendor, m.target.Model) {
		return DropCircuitOpen, "has an open circuit after repeated failures", 0
	}
	if m.keyless {
		return Kept, "", 0 // never paused: the pool admits by itself
	}
	if wait := v.Paused(m.target.Vendor, credential, m.target.Model); wait > 0 {
		return DropVendorPaused, "is paused by " + m.target.Vendor + " for another " + seconds(wait), wait
	}
	return Kept, "", 0
}

// seconds rounds up, so that nobody comes back too early.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
}
