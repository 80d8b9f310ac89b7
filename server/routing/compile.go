package routing

import (
	"cmp"
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// Compile checks a configuration and turns it into a Table. Its error is a *status.Error that holds every mistake at
// once, each under its path; the paths count in the order in which cfg lists things, which need not be the stored one.
//
// A vendor key that open refuses is no mistake of the configuration, since replicas may hold different keyrings while
// one is rotated: the credential is left out and listed by Unreadable. A nil open leaves out all of them, which is
// enough to check a configuration before it is stored.
func Compile(cfg *store.Config, open func(store.VendorKey) (vendors.Secret, error)) (*Table, error) {
	return compile(cfg, open, nil)
}

// compile takes what open refuses from an earlier table, if there is one.
func compile(cfg *store.Config, open func(store.VendorKey) (vendors.Secret, error), earlier *Table) (*Table, error) {
	if found := check(cfg); len(found) > 0 {
		return nil, status.Invalid(found)
	}
	t := &Table{
		version:     cfg.Version,
		models:      make(map[string]*model, len(cfg.Models)),
		media:       map[Modality][]*rule{},
		rules:       make(map[string]*rule, len(cfg.Rules)),
		teams:       make(map[string]*team, len(cfg.Teams)),
		credentials: map[string][]credential{},
		stored:      len(cfg.VendorKeys),
	}
	for _, spec := range cfg.Models {
		m := newModel(spec)
		t.models[spec.GetId()] = m
		t.byID = append(t.byID, m)
	}
	slices.SortFunc(t.byID, func(a, b *model) int { return cmp.Compare(a.spec.GetId(), b.spec.GetId()) })
	t.addRules(cfg.Rules)
	for _, row := range cfg.Teams {
		t.teams[row.ID] = newTeam(row)
	}
	t.addLimits(cfg)
	if open != nil {
		t.addCredentials(cfg.VendorKeys, open, earlier)
	}
	return t, nil
}

func newModel(spec *ktmsv1.ModelSpec) *model {
	m := &model{
		spec: spec,
		target: vendors.Target{
			Vendor:          spec.GetVendor(),
			Model:           spec.GetId(),
			BaseURL:         spec.GetEndpoint(),
			Capabilities:    spec.GetCapabilities(),
			MaxOutputTokens: spec.GetMaxOutputTokens(),
		},
		selfHosted: selfHosted(spec.GetVendor()),
		keyless:    keyless(spec.GetVendor()),
		lacksKey:   "needs a credential for " + spec.GetVendor() + ", which the key does not hold",
	}
	for _, e := range spec.GetEfforts() {
		m.efforts |= 1 << e
	}
	m.alone = []*model{m}
	return m
}

// selfHosted says which vendors run on the operator's own machines.
func selfHosted(vendor string) bool {
	return vendor == vendors.Local || vendor == vendors.Ollama || vendor == vendors.Demo
}

// keyless says which vendors serve every client key without a credential.
func keyless(vendor string) bool { return vendor == vendors.Local || vendor == vendors.Demo }

func newTeam(row store.Team) *team {
	t := &team{row: row}
	if len(row.AllowedModels) > 0 {
		t.allowed = make(map[string]struct{}, len(row.AllowedModels))
		for _, id := range row.AllowedModels {
			t.allowed[id] = struct{}{}
		}
	}
	return t
}

func (t *Table) addRules(specs []*ktmsv1.RuleSpec) {
	var enabled []*rule
	numbers := map[string]int{}
	for _, spec := range specs {
		if spec.GetEnabled() {
			r := t.newRule(spec, numbers)
			enabled = append(enabled, r)
			t.rules[r.name] = r
		}
	}
	t.routable = len(enabled) > 0
	slices.SortFunc(enabled, func(a, b *rule) int {
		return cmp.Compare(b.spec.GetPriority(), a.spec.GetPriority())
	})
	for _, r := range enabled {
		if r.modality != Text {
			t.media[r.modality] = hide(t.media[r.modality], r)
			continue
		}
		for _, e := range efforts {
			if r.effort == e || r.effort == ktmsv1.Effort_EFFORT_UNSPECIFIED {
				t.text[e] = hide(t.text[e], r)
			}
		}
	}
}

// hide appends the rule unless the last one already matches everything, in which case no call ever reaches it.
func hide(rules []*rule, r *rule) []*rule {
	if n := len(rules); n > 0 && rules[n-1].catchAll() {
		return rules
	}
	return append(rules, r)
}

func (t *Table) addCredentials(
	keys []store.VendorKey, open func(store.VendorKey) (vendors.Secret, error), earlier *Table,
) {
	for _, k := range keys {
		secret, err := open(k)
		c := credential{vendor: k.Vendor, secret: secret, fingerprint: k.Fingerprint}
		if err != nil {
			kept := false
			if earlier != nil {
				// With the credential goes its own fingerprint: the row's belongs to the one that could not be read.
				c, kept = earlier.credential(k.KeyID, k.Vendor)
			}
			t.unreadable = append(t.unreadable,
				UnreadableKey{KeyID: k.KeyID, KeyName: k.KeyName, Vendor: k.Vendor, Err: err, Kept: kept})
			if !kept {
				continue
			}
		}
		t.credentials[k.KeyID] = append(t.credentials[k.KeyID], c)
	}
}

// efforts are the levels that a caller can ask for.
var efforts = [...]ktmsv1.Effort{
	ktmsv1.Effort_EFFORT_LOW, ktmsv1.Effort_EFFORT_MEDIUM, ktmsv1.Effort_EFFORT_HIGH,
}

// effortName spells an effort as people and the model grammar do.
func effortName(e ktmsv1.Effort) string {
	return strings.ToLower(strings.TrimPrefix(e.String(), "EFFORT_"))
}
