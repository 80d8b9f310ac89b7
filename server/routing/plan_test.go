package routing_test

import (
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

func TestPlan_Rule(t *testing.T) {
	org := func(id string) func(*ktmsv1.RuleSpec) { return func(r *ktmsv1.RuleSpec) { r.OrgId = id } }
	team := func(id string) func(*ktmsv1.RuleSpec) { return func(r *ktmsv1.RuleSpec) { r.TeamId = id } }
	use := []string{"m"}
	cfg := config([]*ktmsv1.ModelSpec{model("m", vendors.OpenAI, can("tts", "judge"))},
		rule("default", 1, use),
		rule("low", 5, use, at(low)),
		rule("es", 10, use, when("language", "es")),
		rule("es-high", 30, use, when("language", "es"), at(high)),
		rule("es-summary", 20, use, when("language", "es", "task", "summary")),
		rule("empty", 11, use, when("flag", "")),
		rule("off", 99, use, func(r *ktmsv1.RuleSpec) { r.Enabled = false }),
		rule("acme", 40, use, org("acme")),
		rule("search", 50, use, when("team_id", "search"), org("acme")),
		rule("lab", 60, use, team("lab"), when("task", "lab")),
		rule("speech", 70, use, when("modality", "tts")),
		rule("speech-es", 80, use, when("modality", "tts", "language", "es"), at(low)),
	)
	cfg.Teams = []store.Team{{ID: "search"}, {ID: "lab"}}
	table := compile(t, cfg)
	tenant := func(org, team string) *caller.Caller { return &caller.Caller{KeyID: "k", OrgID: org, TeamID: team} }

	for _, test := range []struct {
		name   string
		caller *caller.Caller
		query  routing.Query
		want   string
	}{
		{"nothing else matches", key, routing.Query{Effort: medium}, "default"},
		{"the effort", key, routing.Query{Effort: low}, "low"},
		{"an attribute", key, routing.Query{Effort: low, Attributes: attributes("language", "es")}, "es"},
		{"an attribute of another value", key, routing.Query{Effort: high, Attributes: attributes("language", "ES")}, "default"},
		{"an attribute and the effort", key, routing.Query{Effort: high, Attributes: attributes("language", "es")}, "es-high"},
		{"every attribute", key, routing.Query{Effort: low, Attributes: attributes("language", "es", "task", "summary")}, "es-summary"},
		{"priority before the number of conditions", key,
			routing.Query{Effort: high, Attributes: attributes("language", "es", "task", "summary")}, "es-high"},
		{"an empty value is a value", key, routing.Query{Effort: medium, Attributes: attributes("flag", "")}, "empty"},
		{"the key's organization", tenant("acme", ""), routing.Query{Effort: low}, "acme"},
		{"another organization", tenant("other", ""), routing.Query{Effort: low}, "low"},
		{"the key's team", tenant("acme", "search"), routing.Query{Effort: low}, "search"},
		{"the team without its organization", tenant("", "search"), routing.Query{Effort: low}, "low"},
		{"team and attribute", tenant("", "lab"), routing.Query{Effort: low, Attributes: attributes("task", "lab")}, "lab"},
		{"a tenant that the caller made up", key,
			routing.Query{Effort: medium, Attributes: attributes("org_id", "acme", "team_id", "search")}, "default"},
		{"a made-up tenant does not hide the real one", tenant("acme", ""),
			routing.Query{Effort: medium, Attributes: attributes("org_id", "other")}, "acme"},
		{"a modality that the caller made up", key,
			routing.Query{Effort: medium, Attributes: attributes("modality", "tts")}, "default"},
		{"a modality", key, routing.Query{Modality: routing.Speech}, "speech"},
		{"a modality ignores the effort", key, routing.Query{Modality: routing.Speech, Effort: high}, "speech"},
		{"a modality and an attribute", key, routing.Query{Modality: routing.Speech, Attributes: attributes("language", "es")}, "speech-es"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := table.Plan(test.caller, test.query, nil)
			if err != nil || plan.Rule != test.want || outline(plan) != "m" {
				t.Errorf("got rule %q, %s, %v; want %q", plan.Rule, outline(plan), err, test.want)
			}
		})
	}

	plan, err := table.Plan(key, routing.Query{Modality: routing.Judge}, nil)
	if reason(err) != status.NoCapableModel || plan == nil || plan.Rule != "" || len(plan.Candidates) != 0 {
		t.Errorf("a modality without a rule: got %+v, %v", plan, err)
	}
}

func TestPlan_Head(t *testing.T) {
	table := compile(t, config([]*ktmsv1.ModelSpec{model("m", vendors.OpenAI, can("tts"))},
		rule("default", 1, []string{"m"}), rule("speech", 2, []string{"m"}, when("modality", "tts"))))
	for _, test := range []struct {
		name  string
		query routing.Query
		want  routing.Plan
	}{
		{"direct", routing.Query{Effort: high},
			routing.Plan{Rule: "default", Mode: routing.ModeDirect, Effort: high, Placement: routing.NodesFirst}},
		{"the caller's mode and placement", routing.Query{Effort: low, Mode: routing.ModeAutoJudge, Placement: routing.CloudFirst},
			routing.Plan{Rule: "default", Mode: routing.ModeAutoJudge, Effort: low, Placement: routing.CloudFirst}},
		{"override", routing.Query{Model: "m", Mode: routing.ModeAutoDefault},
			routing.Plan{Mode: routing.ModeOverride, Placement: routing.NodesFirst}},
		{"override keeps the effort for the record", routing.Query{Model: "m", Effort: high},
			routing.Plan{Mode: routing.ModeOverride, Effort: high, Placement: routing.NodesFirst}},
		{"a modality counts as low", routing.Query{Modality: routing.Speech, Effort: high},
			routing.Plan{Rule: "speech", Mode: routing.ModeDirect, Effort: low, Placement: routing.NodesFirst}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := table.Plan(key, test.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := *plan
			if got.Rule != test.want.Rule || got.Mode != test.want.Mode || got.Effort != test.want.Effort ||
				got.Placement != test.want.Placement || got.Version != 7 {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestPlan_Candidate(t *testing.T) {
	spec := model("m", vendors.Ollama, can("vision"), func(m *ktmsv1.ModelSpec) { m.MaxOutputTokens = 900 })
	cfg := config([]*ktmsv1.ModelSpec{spec})
	cfg.VendorKeys = append(cfg.VendorKeys, credential("other", vendors.Ollama))
	plan, err := compile(t, cfg).Plan(key, routing.Query{Effort: low}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := plan.Candidates[0]
	if c.Spec != spec || c.Credential != "k/ollama" || c.Target.Vendor != "ollama" || c.Target.Model != "m" ||
		c.Target.BaseURL != "http://ollama.example/v1" || c.Target.Key.Reveal() != "secret of k" ||
		len(c.Target.Capabilities) != 1 || c.Target.MaxOutputTokens != 900 || c.Detail != "" || c.Wait != 0 {
		t.Errorf("got %+v", c)
	}
}

// TestPlan_Drops walks one model past every filter: each line breaks one thing more at the front of the order, so that
// the first failing filter must name the drop.
func TestPlan_Drops(t *testing.T) {
	spec := func() *ktmsv1.ModelSpec {
		return model("m", vendors.OpenAI, can("vision"), taking(100), serving(low, medium))
	}
	query := routing.Query{Effort: low}
	c := caller.Caller{KeyID: "k"}
	v := view{paused: map[string]time.Duration{}}
	models := []*ktmsv1.ModelSpec{spec(), model("spare", vendors.Groq)}
	cfg := config(models)
	cfg.VendorKeys = cfg.VendorKeys[:1]
	cfg.Teams = []store.Team{{ID: "t", AllowedModels: []string{"spare"}}, {ID: "free"}}

	for _, step := range []struct {
		do     func()
		drop   routing.Drop
		detail string
	}{
		{func() {}, routing.Kept, ""},
		{func() { v.paused["openai|k/openai|m"] = 1500 * time.Millisecond }, routing.DropVendorPaused,
			"is paused by openai for another 2 s"},
		{func() { v.open = []string{"openai/m"} }, routing.DropCircuitOpen, "has an open circuit after repeated failures"},
		{func() { query.Tokens = 101 }, routing.DropContext, "takes 100 tokens, the request needs about 101"},
		{func() { query.Placement = routing.NodesOnly }, routing.DropPlacement, "runs in the cloud, which nodes_only excludes"},
		{func() { query.Needs = []string{"vision", "pdf_input"} }, routing.DropCapability, "lacks the capability pdf_input"},
		{func() { query.Effort = high }, routing.DropEffort, "does not serve high effort"},
		{func() { c.KeyID = "other" }, routing.DropNoVendorKey, "needs a credential for openai, which the key does not hold"},
		{func() { c.TeamID = "t" }, routing.DropTeamPolicy, "is not among the models that the team allows"},
		{func() { c.AllowedModels = []string{"spare"} }, routing.DropKeyPolicy, "is not among the models that the key allows"},
		{func() { models[0].Enabled = false }, routing.DropDisabled, "is disabled"},
	} {
		step.do()
		plan, _ := compile(t, cfg).Plan(&c, query, v)
		got := plan.Candidates[0]
		if got.Target.Model != "m" || got.Drop != step.drop || got.Detail != step.detail {
			t.Errorf("got %s %q %q, want %q %q", got.Target.Model, got.Drop, got.Detail, step.drop, step.detail)
		}
		if wait := v.paused["openai|k/openai|m"]; step.drop == routing.DropVendorPaused && got.Wait != wait {
			t.Errorf("Wait: got %v, want %v", got.Wait, wait)
		}
		held := step.drop != routing.DropNoVendorKey && step.drop != routing.DropTeamPolicy &&
			step.drop != routing.DropKeyPolicy && step.drop != routing.DropDisabled
		if got.Target.Key.IsZero() == held {
			t.Errorf("%q: the target holds a key: %v", step.drop, !got.Target.Key.IsZero())
		}
	}
}

func TestPlan_Filters(t *testing.T) {
	cfg := config([]*ktmsv1.ModelSpec{
		model("cloud", vendors.OpenAI, serving(low), taking(100), can("tts")),
		model("node", vendors.Local), model("echo", vendors.Demo),
	}, rule("default", 1, []string{"cloud", "node", "echo"}), rule("speech", 2, []string{"node", "cloud"}, when("modality", "tts")))
	cfg.Teams = []store.Team{{ID: "t", AllowedModels: []string{"node"}}, {ID: "free"}}
	table := compile(t, cfg)
	down := view{open: []string{"local/node", "demo/echo"}, paused: map[string]time.Duration{"local||node": time.Second}}

	for _, test := range []struct {
		name   string
		caller caller.Caller
		query  routing.Query
		view   routing.View
		want   string
	}{
		{"tokens at the limit fit", caller.Caller{KeyID: "k"}, routing.Query{Model: "cloud", Tokens: 100}, nil, "cloud"},
		{"unknown tokens fit", caller.Caller{KeyID: "k"}, routing.Query{Model: "cloud"}, nil, "cloud"},
		{"an unknown limit fits all", caller.Caller{}, routing.Query{Model: "node", Tokens: 1e12}, nil, "node"},
		{"no effort on override", caller.Caller{KeyID: "k"}, routing.Query{Model: "cloud", Effort: high}, nil, "cloud"},
		{"placement on override", caller.Caller{KeyID: "k"}, routing.Query{Model: "cloud", Placement: routing.NodesOnly}, nil,
			"cloud!placement"},
		{"preferring is not excluding", caller.Caller{KeyID: "k"}, routing.Query{Model: "cloud", Placement: routing.NodesFirst}, nil,
			"cloud"},
		{"a modality needs its capability", caller.Caller{KeyID: "k"}, routing.Query{Modality: routing.Speech}, nil,
			"node!capability cloud"},
		{"a modality needs it on override too", caller.Caller{KeyID: "k"}, routing.Query{Model: "node", Modality: routing.Speech}, nil,
			"node!capability"},
		{"a modality ignores the models' efforts", caller.Caller{KeyID: "k"},
			routing.Query{Modality: routing.Speech, Effort: high, Placement: routing.CloudFirst}, nil, "cloud node!capability"},
		{"what needs no key is never paused", caller.Caller{}, routing.Query{Effort: low, Placement: routing.NodesOnly},
			view{paused: down.paused}, "cloud!no_vendor_key node echo"},
		{"machines have circuits of their own", caller.Caller{KeyID: "k"}, routing.Query{Effort: low}, down,
			"node echo!circuit_open cloud"},
		{"no machine is there", caller.Caller{KeyID: "k"}, routing.Query{Effort: low}, view{absent: map[string]string{"node": "x", "cloud": "x"}},
			"node!no_node echo cloud"},
		{"a team that allows all", caller.Caller{KeyID: "k", TeamID: "free"}, routing.Query{Effort: low}, nil, "node echo cloud"},
		{"a team that allows some", caller.Caller{KeyID: "k", TeamID: "t"}, routing.Query{Effort: low}, nil,
			"node echo!team_policy cloud!team_policy"},
		{"a team that is not known yet", caller.Caller{KeyID: "k", TeamID: "new"}, routing.Query{Effort: low}, nil,
			"node!team_policy echo!team_policy cloud!team_policy"},
		{"both lists", caller.Caller{KeyID: "k", TeamID: "t", AllowedModels: []string{"node", "cloud"}}, routing.Query{Effort: low}, nil,
			"node echo!key_policy cloud!team_policy"},
		{"Keystone's own calls", caller.Caller{KeyID: "k", TeamID: "t", AllowedModels: []string{"echo"}},
			routing.Query{Effort: low, Unrestricted: true}, nil, "node echo cloud"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := table.Plan(&test.caller, test.query, test.view)
			if got := outline(plan); got != test.want {
				t.Errorf("got %s (%v), want %s", got, err, test.want)
			}
		})
	}
}
