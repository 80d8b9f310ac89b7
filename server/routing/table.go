package routing

import (
	"fmt"
	"io"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// Table is one version of the routing configuration, checked and indexed. It never changes, so any number of
// goroutines may use it.
type Table struct {
	version int64
	models  map[string]*model
	// byID holds the same models in the order of their ids.
	byID []*model
	// text holds the rules that a call with an effort may match, by effort, and media those of each modality; both by
	// falling priority and without the rules that another one always hides.
	text  [4][]*rule
	media map[Modality][]*rule
	rules map[string]*rule
	// attributes are the keys that rules ask for; a condition names one by its place here.
	attributes []string
	teams      map[string]*team
	spendCaps  map[capped]int64
	userRates  map[rated]userRate
	// credentials are listed by client key; each holds few vendors, so that a walk over them beats a second map.
	credentials map[string][]credential
	unreadable  []UnreadableKey
	// stored counts the vendor keys of the configuration, readable or not.
	stored int
	// routable says that at least one rule is enabled.
	routable bool
}

// UnreadableKey is a stored vendor key that could not be opened.
type UnreadableKey struct {
	KeyID   string
	KeyName string
	Vendor  string
	// Err is the reason, as the opener gave it.
	Err error
	// Kept says that the credential read earlier for the same client key and vendor stays in use.
	Kept bool
}

// model is a catalogue entry and what Plan would otherwise work out on every call.
type model struct {
	spec *ktmsv1.ModelSpec
	// target lacks the credential.
	target vendors.Target
	// efforts has a bit for each effort that the model serves; 0 serves every one.
	efforts    uint8
	selfHosted bool
	keyless    bool
	// lacksKey is the sentence for a caller without this vendor's credential.
	lacksKey string
	// alone is the chain of an override.
	alone []*model
}

// serves reports whether the model declares the effort. A model that declares none serves all.
func (m *model) serves(e ktmsv1.Effort) bool {
	return m.efforts == 0 || m.efforts&(1<<e) != 0
}

type team struct {
	row store.Team
	// allowed is nil when any model is.
	allowed map[string]struct{}
}

type credential struct {
	vendor      string
	secret      vendors.Secret
	fingerprint string
}

func (t *Table) credential(keyID, vendor string) (credential, bool) {
	return pick(t.credentials[keyID], vendor)
}

func pick(held []credential, vendor string) (credential, bool) {
	for _, c := range held {
		if c.vendor == vendor {
			return c, true
		}
	}
	return credential{}, false
}

// Version is the version of the configuration that the table was made from.
func (t *Table) Version() int64 { return t.version }

// Configured reports whether there is anything to route to: a model, and an enabled rule that leads to it.
func (t *Table) Configured() bool { return len(t.byID) > 0 && t.routable }

// Unreadable lists the stored vendor keys that could not be opened.
func (t *Table) Unreadable() []UnreadableKey { return t.unreadable }

// Rule returns an enabled rule by name, as Plan.Rule gives it. Readers must not change it.
func (t *Table) Rule(name string) (*ktmsv1.RuleSpec, bool) {
	r, ok := t.rules[name]
	if !ok {
		return nil, false
	}
	return r.spec, true
}

// Team returns a team by id.
func (t *Table) Team(id string) (store.Team, bool) {
	tm, ok := t.teams[id]
	if !ok {
		return store.Team{}, false
	}
	return tm.row, true
}

// Format prints the version alone under every verb. Without it fmt would walk into the credentials: it cannot call
// the methods of what sits in unexported fields, so that even a Secret would print its value.
func (t *Table) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, fmt.Sprint("routing table, version ", t.version))
}
