package routing

import (
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
)

// rule is an enabled rule, ready to be matched.
type rule struct {
	spec   *ktmsv1.RuleSpec
	name   string
	effort ktmsv1.Effort
	// modality, orgID and teamID are apart from the attributes, so that nothing that a caller sends is compared with
	// them.
	modality   Modality
	orgID      string
	teamID     string
	attributes []attribute
	chain      []*model
	// shares are the running sums of the weights; nil picks the first model always.
	shares []int64
	// salt is the hash of the name, from which a sticky pick starts.
	salt uint64
}

type attribute struct{ key, value string }

func newRule(spec *ktmsv1.RuleSpec, models map[string]*model) *rule {
	r := &rule{
		spec:     spec,
		name:     spec.GetName(),
		effort:   spec.GetEffort(),
		modality: Modality(spec.GetAttributes()[AttrModality]),
		orgID:    tenant(spec.GetOrgId(), spec.GetAttributes()[AttrOrgID]),
		teamID:   tenant(spec.GetTeamId(), spec.GetAttributes()[AttrTeamID]),
		salt:     salt(spec.GetName()),
	}
	for k, v := range spec.GetAttributes() {
		if k != AttrModality && k != AttrOrgID && k != AttrTeamID {
			r.attributes = append(r.attributes, attribute{k, v})
		}
	}
	slices.SortFunc(r.attributes, func(a, b attribute) int { return strings.Compare(a.key, b.key) })
	for _, id := range spec.GetUse() {
		r.chain = append(r.chain, models[id])
	}
	var sum int64
	for _, w := range spec.GetWeights() {
		sum += int64(w)
		r.shares = append(r.shares, sum)
	}
	return r
}

// tenant joins the two spellings; check has refused a rule in which they differ.
func tenant(field, attribute string) string {
	if field != "" {
		return field
	}
	return attribute
}

// catchAll reports whether nothing but effort or modality narrows the rule.
func (r *rule) catchAll() bool { return r.orgID == "" && r.teamID == "" && len(r.attributes) == 0 }

// match finds the rule of a call: the first by priority whose every condition holds. Effort and modality have
// already chosen among the lists.
func (t *Table) match(c *caller.Caller, q *Query) *rule {
	rules := t.media[q.Modality]
	if q.Modality == Text {
		rules = t.text[q.Effort]
	}
	for _, r := range rules {
		if r.matches(c, q.Attributes) {
			return r
		}
	}
	return nil
}

func (r *rule) matches(c *caller.Caller, attributes map[string]string) bool {
	if r.orgID != "" && r.orgID != c.OrgID || r.teamID != "" && r.teamID != c.TeamID {
		return false
	}
	for _, want := range r.attributes {
		if got, ok := attributes[want.key]; !ok || got != want.value {
			return false
		}
	}
	return true
}
