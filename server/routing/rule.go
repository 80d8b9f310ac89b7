package routing

import (
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

// attribute is a condition. Its key is a number, so that a call looks each key up once, however many rules ask for it.
type attribute struct {
	key   int
	value string
}

// newRule adds the keys that are new to t.attributes; numbers says where each known one stands there.
func (t *Table) newRule(spec *ktmsv1.RuleSpec, numbers map[string]int) *rule {
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
			at, known := numbers[k]
			if !known {
				at = len(t.attributes)
				numbers[k] = at
				t.attributes = append(t.attributes, k)
			}
			r.attributes = append(r.attributes, attribute{at, v})
		}
	}
	for _, id := range spec.GetUse() {
		r.chain = append(r.chain, t.models[id])
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
	var few [16]answer // as many keys as most configurations have, without an allocation
	answers := few[:]
	if n := len(t.attributes); n > len(few) {
		answers = make([]answer, n)
	}
	for _, r := range rules {
		if r.orgID != "" && r.orgID != c.OrgID || r.teamID != "" && r.teamID != c.TeamID {
			continue
		}
		if t.holds(r.attributes, q.Attributes, answers) {
			return r
		}
	}
	return nil
}

// answer is what a call says about one attribute, once it has been asked.
type answer struct {
	asked, given bool
	value        string
}

func (t *Table) holds(conditions []attribute, given map[string]string, answers []answer) bool {
	for _, want := range conditions {
		got := &answers[want.key]
		if !got.asked {
			got.asked = true
			got.value, got.given = given[t.attributes[want.key]]
		}
		if !got.given || got.value != want.value {
			return false
		}
	}
	return true
}
