package routing_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// dice turns fuzzed bytes into choices from small sets, so that names meet often enough to matter.
type dice struct{ bytes []byte }

func (d *dice) roll(sides int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % sides
}

func choose[T any](d *dice, from ...T) T { return from[d.roll(len(from))] }

// mostly picks a mistake one time in sixteen: a configuration with one in every field would never compile.
func mostly[T any](d *dice, good T, odd ...T) T {
	if d.roll(16) < 15 {
		return good
	}
	return choose(d, odd...)
}

func (d *dice) config() *store.Config {
	cfg := &store.Config{Version: 1}
	for i := range 1 + d.roll(4) {
		cfg.Models = append(cfg.Models, mostly(d, d.model(i), nil))
	}
	for i := range d.roll(8) {
		cfg.Rules = append(cfg.Rules, mostly(d, d.rule(i, len(cfg.Models)), nil))
	}
	for range d.roll(3) {
		cfg.Teams = append(cfg.Teams, store.Team{ID: choose(d, "t", "u", ""), AllowedModels: d.use(3)})
	}
	for range d.roll(4) {
		cfg.VendorKeys = append(cfg.VendorKeys, credential(choose(d, "k", "l", ""), choose(d, "openai", "ollama", "local", "x")))
	}
	for _, m := range cfg.Models { // one key can reach everything
		cfg.VendorKeys = append(cfg.VendorKeys, credential("all", m.GetVendor()))
	}
	if d.roll(16) == 15 {
		cfg.Models = nil
	}
	d.limits(cfg)
	return cfg
}

func (d *dice) limits(cfg *store.Config) {
	for _, subjectID := range letters[:d.roll(3)] {
		cfg.SpendLimits = append(cfg.SpendLimits, mostly(d, &ktmsv1.SpendLimit{
			SubjectType:  mostly(d, choose(d, "key", "user"), "team", ""),
			SubjectId:    mostly(d, subjectID, "*", "a", ""),
			Period:       mostly(d, choose(d, "day", "month"), "year", ""),
			LimitNanousd: mostly[int64](d, 5, 0, -1, 1<<53, 1<<53+1),
		}, nil))
	}
	for _, modelID := range letters[:d.roll(3)] {
		cfg.UserRateLimits = append(cfg.UserRateLimits, mostly(d, &ktmsv1.UserRateLimit{
			UserId:  mostly(d, choose(d, "u", "*"), ""),
			ModelId: mostly(d, modelID, "*", "a", ""),
			Rpm:     mostly[int32](d, choose[int32](d, 0, 5), -1),
		}, nil))
	}
}

var letters = []string{"a", "b", "c", "d"}

func (d *dice) model(i int) *ktmsv1.ModelSpec {
	vendor := choose(d, vendors.OpenAI, vendors.Local, vendors.Ollama, vendors.Azure, vendors.Demo, "", "x")
	endpoint := ""
	if vendor == vendors.Ollama || vendor == vendors.Azure {
		endpoint = "http://h"
	}
	m := &ktmsv1.ModelSpec{
		Id:            mostly(d, letters[i], "a", "b", "", "auto", "auto:x", "*"),
		Vendor:        vendor,
		Endpoint:      mostly(d, endpoint, "", "https://h:1/x?y", "http://u:p@h", "%", ":", "//h"),
		Enabled:       d.roll(4) > 0,
		ContextLength: int64(d.roll(3)) * 100,
		Capabilities:  choose(d, nil, []string{"tts"}, []string{"judge", "vision"}),
		Efforts:       choose(d, nil, nil, []ktmsv1.Effort{low}, []ktmsv1.Effort{medium, high}, []ktmsv1.Effort{high}),
	}
	m.Efforts = mostly(d, m.Efforts, []ktmsv1.Effort{200}, []ktmsv1.Effort{unspecified})
	for i := range d.roll(3) {
		m.PriceTiers = append(m.PriceTiers, &ktmsv1.PriceTier{AbovePromptTokens: mostly(d, int64(i+1), 0, -1, 1, 9)})
	}
	return m
}

// use is a chain of different models among the first n.
func (d *dice) use(n int) []string {
	ids := append([]string{}, letters[:n]...)
	for i := range ids {
		j := i + d.roll(len(ids)-i)
		ids[i], ids[j] = ids[j], ids[i]
	}
	return mostly(d, ids[:1+d.roll(n)], nil, []string{"gone"}, []string{"a", "a"})
}

func (d *dice) rule(i, models int) *ktmsv1.RuleSpec {
	r := &ktmsv1.RuleSpec{
		Name:        mostly(d, string(rune('p'+i)), "p", ""),
		Priority:    mostly(d, int32(i*5%8), 0, 1, -1),
		Effort:      mostly(d, choose(d, unspecified, unspecified, low, medium, high), 77),
		Use:         d.use(models),
		Enabled:     d.roll(4) > 0,
		ShadowModel: mostly(d, "", "a", "gone"),
		ShadowEval:  d.roll(32) == 31,
	}
	if d.roll(2) == 1 {
		for range r.Use {
			r.Weights = append(r.Weights, mostly[int32](d, choose[int32](d, 1, 9, 1<<31-1), 0, -1))
		}
		r.Weights = mostly(d, r.Weights, []int32{1}, []int32{1, 2, 3, 4, 5})
	}
	if d.roll(3) == 0 {
		return r // a catch-all, unless it has an effort
	}
	r.OrgId, r.TeamId = choose(d, "", "", "o"), choose(d, "", "", "t")
	for range d.roll(3) {
		if r.Attributes == nil {
			r.Attributes = map[string]string{}
		}
		key := choose(d, "x", "modality", "org_id", "team_id")
		good := map[string]string{"x": "1", "modality": "tts", "org_id": "o", "team_id": "t"}[key]
		r.Attributes[key] = mostly(d, good, "", "judge", "2")
	}
	return r
}

// FuzzCompile holds Compile and Plan to their promises: no panic whatever the configuration, mistakes with paths, the
// same result for the same input, and, once a configuration compiles, a rule with a model for every effort.
func FuzzCompile(f *testing.F) {
	for seed := range uint64(64) { // enough of them compile to start from
		bytes := make([]byte, 120)
		random := rand.New(rand.NewPCG(seed, seed))
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		cfg := (&dice{bytes}).config()
		table, err := routing.Compile(cfg, open)
		_, again := routing.Compile(cfg, nil)
		if fmt.Sprint(err) != fmt.Sprint(again) {
			t.Fatalf("two answers: %v and %v", err, again)
		}
		if err != nil {
			var e *status.Error
			if !errors.As(err, &e) || e.Reason != status.BadRequest || len(e.Violations) == 0 || table != nil {
				t.Fatalf("got %v, %v", table, err)
			}
			for _, v := range e.Violations {
				if v.Path == "" || v.Text == "" {
					t.Fatalf("a mistake without path or text: %v", e.Violations)
				}
			}
			return
		}
		fuzzPlans(t, table)
		fuzzLimits(t, cfg, table)
	})
}

// fuzzLimits wants every row that compiled to be found again by its own name.
func fuzzLimits(t *testing.T, cfg *store.Config, table *routing.Table) {
	for _, l := range cfg.SpendLimits {
		if got := table.SpendCap(l.GetSubjectType(), l.GetSubjectId(), l.GetPeriod()); got != l.GetLimitNanousd() || got <= 0 {
			t.Fatalf("the cap %v is %d in the table", l, got)
		}
	}
	for _, l := range cfg.UserRateLimits {
		if rpm, burst := table.UserRate(l.GetUserId(), l.GetModelId()); rpm != l.GetRpm() || burst != l.GetRpmBurst() {
			t.Fatalf("the rate %v is %d, %d in the table", l, rpm, burst)
		}
	}
}

func fuzzPlans(t *testing.T, table *routing.Table) {
	callers := []*caller.Caller{
		{KeyID: "all"}, {}, {KeyID: "k"}, {KeyID: "l", TeamID: "t", OrgID: "o"}, {TeamID: "gone", AllowedModels: []string{"a"}},
	}
	for _, c := range callers {
		table.Models(c)
		for _, placement := range []routing.Placement{"", routing.NodesOnly, routing.CloudFirst, routing.CloudOnly} {
			for _, q := range []routing.Query{
				{Effort: low}, {Effort: medium}, {Effort: high}, {Modality: routing.Speech}, {Modality: routing.Judge},
				{Model: "a"}, {Model: "gone"}, {Effort: low, Attributes: attributes("x", "1", "user_id", "u"), Tokens: 150},
			} {
				q.Placement, q.Draw = placement, 0.7
				plan, err := table.Plan(c, q, nil)
				kept := 0
				for _, candidate := range plan.Candidates {
					if candidate.Drop == routing.Kept {
						kept++
					}
					if (candidate.Drop == routing.Kept) != (candidate.Detail == "") {
						t.Fatalf("%+v: drop %q with detail %q", q, candidate.Drop, candidate.Detail)
					}
				}
				if (err == nil) != (kept > 0) || err != nil && reason(err) == "" {
					t.Fatalf("%+v: %s with %v", q, outline(plan), err)
				}
				if q.Model == "" && q.Modality == routing.Text && table.Configured() {
					covered(t, table, c, plan)
				}
			}
		}
	}
}

// covered checks what the catch-alls are for.
func covered(t *testing.T, table *routing.Table, c *caller.Caller, plan *routing.Plan) {
	if plan.Rule == "" || len(plan.Candidates) == 0 {
		t.Fatalf("effort %s falls through: %+v", plan.Effort, plan)
	}
	if c.KeyID != "all" || plan.Placement != routing.NodesFirst {
		return
	}
	if r, _ := table.Rule(plan.Rule); len(r.GetAttributes()) > 0 {
		return // a rule for some calls may be for some efforts
	}
	for _, candidate := range plan.Candidates {
		if candidate.Drop != routing.DropEffort {
			return
		}
	}
	t.Fatalf("effort %s is caught by rule %s, none of whose models serves it", plan.Effort, plan.Rule)
}
