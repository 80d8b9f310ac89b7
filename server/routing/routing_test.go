package routing_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

const (
	unspecified = ktmsv1.Effort_EFFORT_UNSPECIFIED
	low         = ktmsv1.Effort_EFFORT_LOW
	medium      = ktmsv1.Effort_EFFORT_MEDIUM
	high        = ktmsv1.Effort_EFFORT_HIGH
)

// open stands for a keyring that has every key: what is sealed is what was sealed.
func open(k store.VendorKey) (vendors.Secret, error) { return vendors.NewSecret(string(k.Sealed)), nil }

// model makes an enabled model that serves every effort.
func model(id, vendor string, change ...func(*ktmsv1.ModelSpec)) *ktmsv1.ModelSpec {
	m := &ktmsv1.ModelSpec{Id: id, Vendor: vendor, Enabled: true}
	if vendor == vendors.Ollama || vendor == vendors.Azure {
		m.Endpoint = "http://" + vendor + ".example/v1"
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func can(capabilities ...string) func(*ktmsv1.ModelSpec) {
	return func(m *ktmsv1.ModelSpec) { m.Capabilities = capabilities }
}

func serving(efforts ...ktmsv1.Effort) func(*ktmsv1.ModelSpec) {
	return func(m *ktmsv1.ModelSpec) { m.Efforts = efforts }
}

func taking(tokens int64) func(*ktmsv1.ModelSpec) {
	return func(m *ktmsv1.ModelSpec) { m.ContextLength = tokens }
}

func disabled(m *ktmsv1.ModelSpec) { m.Enabled = false }

// rule makes an enabled rule for every effort.
func rule(name string, priority int32, use []string, change ...func(*ktmsv1.RuleSpec)) *ktmsv1.RuleSpec {
	r := &ktmsv1.RuleSpec{Name: name, Priority: priority, Use: use, Enabled: true}
	for _, f := range change {
		f(r)
	}
	return r
}

func when(pairs ...string) func(*ktmsv1.RuleSpec) {
	return func(r *ktmsv1.RuleSpec) { r.Attributes = attributes(pairs...) }
}

func at(e ktmsv1.Effort) func(*ktmsv1.RuleSpec) {
	return func(r *ktmsv1.RuleSpec) { r.Effort = e }
}

func weighted(weights ...int32) func(*ktmsv1.RuleSpec) {
	return func(r *ktmsv1.RuleSpec) { r.Weights = weights }
}

func attributes(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func credential(key, vendor string) store.VendorKey {
	return store.VendorKey{KeyID: key, KeyName: key + "-name", Vendor: vendor, Sealed: []byte("secret of " + key),
		Fingerprint: key + "/" + vendor}
}

// config holds the models and, unless rules are given, one rule over all of them. The key "k" has a credential for
// every cloud vendor among them.
func config(models []*ktmsv1.ModelSpec, rules ...*ktmsv1.RuleSpec) *store.Config {
	cfg := &store.Config{Version: 7, Models: models, Rules: rules}
	var use []string
	seen := map[string]bool{vendors.Local: true, vendors.Demo: true}
	for _, m := range models {
		use = append(use, m.GetId())
		if v := m.GetVendor(); !seen[v] {
			seen[v] = true
			cfg.VendorKeys = append(cfg.VendorKeys, credential("k", v))
		}
	}
	if rules == nil {
		cfg.Rules = []*ktmsv1.RuleSpec{rule("default", 1, use)}
	}
	return cfg
}

func compile(t testing.TB, cfg *store.Config) *routing.Table {
	t.Helper()
	table, err := routing.Compile(cfg, open)
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return table
}

// view is a View from two lists.
type view struct {
	open     []string // vendor/model
	unspoken []string
	paused   map[string]time.Duration
	absent   map[string]string // model → why
}

func (v view) Absent(model string) string { return v.absent[model] }

func (v view) Speaks(vendor string) bool { return !slices.Contains(v.unspoken, vendor) }

func (v view) CircuitOpen(vendor, model string) bool {
	for _, o := range v.open {
		if o == vendor+"/"+model {
			return true
		}
	}
	return false
}

func (v view) Paused(vendor, credential, model string) time.Duration {
	return v.paused[vendor+"|"+credential+"|"+model]
}

var key = &caller.Caller{KeyID: "k"}

// outline writes a plan as "model model!drop …".
func outline(p *routing.Plan) string {
	var parts []string
	for _, c := range p.Candidates {
		part := c.Target.Model
		if c.Drop != routing.Kept {
			part += "!" + string(c.Drop)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func reason(err error) status.Reason {
	var e *status.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Reason
}
