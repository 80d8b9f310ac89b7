package routing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// base has one model per way to differ, and no rules.
func base(rules ...*ktmsv1.RuleSpec) *store.Config {
	return config([]*ktmsv1.ModelSpec{
		model("any", vendors.OpenAI),
		model("low", vendors.OpenAI, serving(low)),
		model("low-medium", vendors.OpenAI, serving(low, medium)),
		model("voice", vendors.OpenAI, can("tts")),
	}, append([]*ktmsv1.RuleSpec{}, rules...)...)
}

var fallback = rule("fallback", -1, []string{"any"})

func endpoint(url string) func(*ktmsv1.ModelSpec) {
	return func(m *ktmsv1.ModelSpec) { m.Endpoint = url }
}

func tiers(above ...int64) func(*ktmsv1.ModelSpec) {
	return func(m *ktmsv1.ModelSpec) {
		for _, a := range above {
			m.PriceTiers = append(m.PriceTiers, &ktmsv1.PriceTier{AbovePromptTokens: a})
		}
	}
}

func TestCompile_Mistakes(t *testing.T) {
	off := func(r *ktmsv1.RuleSpec) { r.Enabled = false }
	org := func(id string) func(*ktmsv1.RuleSpec) { return func(r *ktmsv1.RuleSpec) { r.OrgId = id } }
	team := func(id string) func(*ktmsv1.RuleSpec) { return func(r *ktmsv1.RuleSpec) { r.TeamId = id } }
	shadow := func(id string, eval bool) func(*ktmsv1.RuleSpec) {
		return func(r *ktmsv1.RuleSpec) { r.ShadowModel, r.ShadowEval = id, eval }
	}
	models := func(list ...*ktmsv1.ModelSpec) *store.Config { return &store.Config{Models: list} }

	for _, test := range []struct {
		name string
		cfg  *store.Config
		want []string // "path: part of the text"
	}{
		{"nothing at all", &store.Config{}, nil},
		{"models without rules", base(), nil},
		{"a catch-all", base(fallback), nil},
		{"an unordered rule set", base(rule("a", 1, []string{"any"}, when("x", "y")), rule("b", 9, []string{"any"})), nil},

		{"an empty model id", models(model("", vendors.OpenAI)), []string{"models[0].id: is empty"}},
		{"a missing model", models(nil), []string{"models[0].id: is empty"}},
		{"the id auto", models(model("auto", vendors.OpenAI)), []string{"models[0].id: \"auto\" is reserved"}},
		{"an auto id", models(model("auto:gpu", vendors.OpenAI)), []string{"models[0].id: \"auto:gpu\" is reserved"}},
		{"the id *", models(model("*", vendors.OpenAI)), []string{"models[0].id: \"*\" stands for every model"}},
		{"an id that only starts like it", models(model("automatic", vendors.OpenAI)), nil},
		{"a model id twice", models(model("a", vendors.OpenAI), model("b", vendors.OpenAI), model("a", vendors.Groq)),
			[]string{"models[2].id: \"a\" is also the id of models[0]"}},
		{"an unknown effort of a model", models(model("a", vendors.OpenAI, serving(low, unspecified, 9))),
			[]string{"models[0].efforts[1]: EFFORT_UNSPECIFIED", "models[0].efforts[2]: 9"}},
		{"no endpoint where one is needed",
			models(model("a", vendors.Azure, endpoint("")), model("b", vendors.Ollama, endpoint(""))),
			[]string{"models[0].endpoint: is required for vendor azure", "models[1].endpoint: is required for vendor ollama"}},
		{"endpoints that are none", models(
			model("a", vendors.OpenAI, endpoint("ftp://host/v1")), model("b", vendors.OpenAI, endpoint("host:80/v1")),
			model("c", vendors.OpenAI, endpoint("http:///v1")), model("d", vendors.OpenAI, endpoint("http://:80/v1")),
			model("e", vendors.OpenAI, endpoint("http://bad host/")), model("f", vendors.OpenAI, endpoint("/v1")),
			model("g", vendors.OpenAI, endpoint("https://user:pw@host/v1"))),
			[]string{"models[0].endpoint: must start with http", "models[1].endpoint: must start with http",
				"models[2].endpoint: names no host", "models[3].endpoint: names no host", "models[4].endpoint: is not a URL",
				"models[5].endpoint: must start with http", "models[6].endpoint: must not hold a user or password"}},
		{"endpoints that are good", models(
			model("a", vendors.Azure, endpoint("https://x.openai.azure.com?api-version=2024-10-21")),
			model("b", vendors.Ollama, endpoint("http://[::1]:11434/v1"))), nil},
		{"a local model with an endpoint", models(model("a", vendors.Local, endpoint("http://host"))),
			[]string{"models[0].endpoint: must be empty for vendor local"}},
		{"price tiers that do not rise", models(model("a", vendors.OpenAI, tiers(100, 100, 50, 200)),
			model("b", vendors.OpenAI, tiers(0))),
			[]string{"models[0].price_tiers[1].above_prompt_tokens: must be more than 100",
				"models[0].price_tiers[2].above_prompt_tokens: must be more than 100",
				"models[1].price_tiers[0].above_prompt_tokens: must be more than 0"}},

		{"a rule without a name", base(fallback, rule("", 2, []string{"any"})), []string{"rules[1].name: is empty"}},
		{"a name and a priority twice, disabled", base(fallback, rule("fallback", -1, []string{"any"}, off)),
			[]string{`rules[1].name: "fallback" is also the name of rules[0]`,
				`rules[1].priority: -1 is also the priority of rules[0] ("fallback")`}},
		{"an empty chain", base(fallback, rule("r", 2, nil)), []string{"rules[1].use: names no model"}},
		{"an unknown model", base(fallback, rule("r", 2, []string{"any", "gone"})),
			[]string{`rules[1].use[1]: model "gone" is not in the catalogue`}},
		{"a model twice in a chain", base(fallback, rule("r", 2, []string{"any", "low", "any"})),
			[]string{`rules[1].use[2]: model "any" is in the chain already`}},
		{"too few weights", base(fallback, rule("r", 2, []string{"any", "low"}, weighted(1))),
			[]string{"rules[1].weights: holds 1 weights for 2 models"}},
		{"too many weights", base(fallback, rule("r", 2, []string{"any"}, weighted(1, 2))),
			[]string{"rules[1].weights: holds 2 weights for 1 models"}},
		{"weights that are not positive", base(fallback, rule("r", 2, []string{"any", "low"}, weighted(0, -3))),
			[]string{"rules[1].weights[0]: is 0", "rules[1].weights[1]: is -3"}},
		{"an unknown shadow", base(fallback, rule("r", 2, []string{"any"}, shadow("gone", true))),
			[]string{`rules[1].shadow_model: model "gone" is not in the catalogue`}},
		{"an evaluation without a shadow", base(fallback, rule("r", 2, []string{"any"}, shadow("", true))),
			[]string{"rules[1].shadow_eval: needs a shadow_model"}},
		{"an effort that a model lacks", base(fallback, rule("r", 2, []string{"any", "low"}, at(high))),
			[]string{`rules[1].use[1]: model "low" does not serve EFFORT_HIGH`}},
		{"any effort with a model for some", base(fallback, rule("r", 2, []string{"low"}, when("a", "b"))), nil},
		{"an effort that is none", base(fallback, rule("r", 2, []string{"any"}, at(8))), []string{"rules[1].effort: 8"}},

		{"a modality that is none", base(fallback, rule("r", 2, []string{"voice"}, when("modality", "video")),
			rule("s", 3, []string{"voice"}, when("modality", ""))),
			[]string{`rules[1].attributes["modality"]: is "video"`, `rules[2].attributes["modality"]: is ""`}},
		{"a modality with an effort", base(fallback, rule("r", 2, []string{"voice"}, when("modality", "tts"), at(high))),
			[]string{"rules[1].effort: EFFORT_HIGH never matches"}},
		{"a modality at low", base(fallback, rule("r", 2, []string{"voice"}, when("modality", "tts"), at(low))), nil},
		{"a modality that no model has", base(fallback, rule("r", 2, []string{"any", "voice"}, when("modality", "judge"))),
			[]string{"rules[1].use: holds no model with the capability judge"}},
		{"tenants that differ", base(fallback, rule("r", 2, []string{"any"}, when("org_id", "a", "team_id", "t"), org("b"), team("u"))),
			[]string{`rules[1].org_id: is "b", but the attribute of that name is "a"`,
				`rules[1].team_id: is "u", but the attribute of that name is "t"`}},
		{"tenants that agree", base(fallback, rule("r", 2, []string{"any"}, when("org_id", "a"), org("a"))), nil},
		{"an empty tenant", base(fallback, rule("r", 2, []string{"any"}, when("team_id", ""))),
			[]string{`rules[1].attributes["team_id"]: is empty`}},

		{"no catch-all", base(rule("r", 2, []string{"any"}, when("a", "b"))),
			[]string{"rules: no enabled rule catches every EFFORT_LOW call; add one with effort EFFORT_LOW or none",
				"rules: no enabled rule catches every EFFORT_MEDIUM", "rules: no enabled rule catches every EFFORT_HIGH"}},
		{"a catch-all of one tenant", base(rule("r", 2, []string{"any"}, org("a")), rule("l", 1, []string{"any"}, at(low)),
			rule("m", 3, []string{"any"}, at(medium))),
			[]string{"rules: no enabled rule catches every EFFORT_HIGH"}},
		{"a disabled catch-all", base(rule("r", 2, []string{"any"}, off), rule("l", 1, []string{"any"}, at(low)),
			rule("m", 3, []string{"any"}, at(medium))),
			[]string{"rules: no enabled rule catches every EFFORT_HIGH"}},
		{"only disabled rules", base(rule("r", 2, []string{"any"}, when("a", "b"), off)),
			[]string{"rules: no enabled rule catches every EFFORT_LOW", "rules: no enabled rule catches every EFFORT_MEDIUM",
				"rules: no enabled rule catches every EFFORT_HIGH"}},
		{"one catch-all for each", base(rule("l", 1, []string{"low"}, at(low)), rule("m", 3, []string{"low-medium"}, at(medium)),
			rule("h", 2, []string{"any"}, at(high))), nil},
		{"a catch-all without a model for high", base(rule("r", 2, []string{"low", "low-medium"})),
			[]string{"rules[0].use: is the catch-all of EFFORT_HIGH, but none of its models serves that effort"}},
		{"a catch-all that hides a better one", base(fallback, rule("r", 2, []string{"low-medium"})),
			[]string{"rules[1].use: is the catch-all of EFFORT_HIGH"}},
		{"a catch-all with a better one above", base(rule("r", 2, []string{"low-medium"}), rule("h", 3, []string{"any"}, at(high))), nil},

		{"a team twice", &store.Config{Teams: []store.Team{{ID: "t"}, {ID: "u"}, {ID: "t"}}},
			[]string{`teams[2].id: "t" is also the id of teams[0]`}},
		{"limits that are good", &store.Config{SpendLimits: []*ktmsv1.SpendLimit{spends("key", "*", "day", 1),
			spends("user", "*", "day", 1<<53), spends("user", "*", "month", 1), spends("user", "a", "month", 1)},
			UserRateLimits: []*ktmsv1.UserRateLimit{perMinute("*", "*", 0, -1), perMinute("*", "gone", 5, 5), perMinute("u", "*", 1, 0)},
			Teams:          []store.Team{{ID: "t", MonthlyBudgetNanoUSD: 1 << 53}}}, nil},
		{"limits that no lookup would find", &store.Config{SpendLimits: []*ktmsv1.SpendLimit{spends("team", "t", "year", 5), spends("key", "", "", 5), nil}},
			[]string{`spend_limits[0].subject_type: is "team"; it must be key or user`,
				`spend_limits[0].period: is "year"; it must be day or month`, "spend_limits[1].subject_id: is empty",
				`spend_limits[1].period: is ""`, `spend_limits[2].subject_type: is ""`, "spend_limits[2].subject_id: is empty",
				`spend_limits[2].period: is ""`, "spend_limits[2].limit_nanousd: is 0"}},
		{"caps that cannot be kept", &store.Config{SpendLimits: []*ktmsv1.SpendLimit{spends("key", "a", "day", 0),
			spends("key", "b", "day", -5), spends("key", "c", "day", 1<<53+1)},
			Teams: []store.Team{{ID: "t", MonthlyBudgetNanoUSD: -1}, {ID: "u", MonthlyBudgetNanoUSD: 1<<53 + 1}}},
			[]string{"spend_limits[0].limit_nanousd: is 0; a cap must be positive", "spend_limits[1].limit_nanousd: is -5",
				"spend_limits[2].limit_nanousd: is 9007199254740993 nano-USD; spend is counted exactly up to 9007199254740992",
				"teams[0].monthly_budget_usd: is negative", "teams[1].monthly_budget_usd: is 9007199254740993 nano-USD"}},
		{"limits twice", &store.Config{SpendLimits: []*ktmsv1.SpendLimit{spends("key", "a", "day", 5), spends("key", "a", "day", 6)},
			UserRateLimits: []*ktmsv1.UserRateLimit{perMinute("u", "m", 5, 0), perMinute("u", "*", 5, 0), perMinute("u", "m", 5, 0)}},
			[]string{`spend_limits[1]: caps key "a" by the day, as spend_limits[0] does`,
				`user_rate_limits[2]: is for user "u" and model "m", as user_rate_limits[0] is`}},
		{"user limits for nobody", &store.Config{UserRateLimits: []*ktmsv1.UserRateLimit{perMinute("", "", -1, 0)}},
			[]string{"user_rate_limits[0].user_id: is empty", "user_rate_limits[0].model_id: is empty", "user_rate_limits[0].rpm: is -1"}},
		{"all at once, in order", base(rule("r", 2, []string{"gone"}, weighted(-1)), rule("r", 2, nil)),
			[]string{"rules[0].use[0]:", "rules[0].weights[0]:", "rules[1].name:", "rules[1].priority:", "rules[1].use:"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, err := routing.Compile(test.cfg, open)
			if len(test.want) == 0 {
				if err != nil || table == nil {
					t.Fatalf("got %v, want a table", err)
				}
				return
			}
			var e *status.Error
			if !errors.As(err, &e) || e.Reason != status.BadRequest || table != nil {
				t.Fatalf("got table %v, error %v, want a bad request", table, err)
			}
			var got []string
			for _, v := range e.Violations {
				got = append(got, v.String())
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %d mistakes, want %d:\n%s", len(got), len(test.want), strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("mistake %d: got %q, want %q", i, got[i], test.want[i])
				}
			}
		})
	}
}

func TestCompile_EndpointMistakeKeepsItsPassword(t *testing.T) {
	for _, url := range []string{"https://user:hunter2@host/v1", "https://user:hunter2@bad host/"} {
		_, err := routing.Compile(&store.Config{Models: []*ktmsv1.ModelSpec{
			model("a", vendors.OpenAI, endpoint(url))}}, open)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want an error without the password", url, err)
		}
	}
}

func TestCompile_VendorKeys(t *testing.T) {
	cfg := config([]*ktmsv1.ModelSpec{model("a", vendors.OpenAI), model("b", vendors.Anthropic), model("c", vendors.Local)})
	cfg.VendorKeys = append(cfg.VendorKeys, credential("k", vendors.Local), credential("other", vendors.OpenAI))
	broken := errors.New("sealed with version 2")
	table, err := routing.Compile(cfg, func(k store.VendorKey) (vendors.Secret, error) {
		if k.Vendor == vendors.Anthropic {
			return vendors.Secret{}, broken
		}
		return open(k)
	})
	if err != nil {
		t.Fatal(err)
	}
	got := table.Unreadable()
	if len(got) != 1 || got[0].KeyID != "k" || got[0].KeyName != "k-name" || got[0].Vendor != vendors.Anthropic ||
		!errors.Is(got[0].Err, broken) || got[0].Kept {
		t.Errorf("Unreadable: got %+v", got)
	}
	plan, err := table.Plan(key, routing.Query{Effort: low}, nil)
	if err != nil || outline(plan) != "c a b!no_vendor_key" {
		t.Errorf("got %q, %v", outline(plan), err)
	}
	if c := plan.Candidates[0]; !c.Target.Key.IsZero() || c.Credential != "" {
		t.Errorf("a local model got the credential %q", c.Credential)
	}
}

func TestCompile_WithoutOpenerChecksOnly(t *testing.T) {
	table, err := routing.Compile(config([]*ktmsv1.ModelSpec{model("a", vendors.OpenAI)}), nil)
	if err != nil || len(table.Unreadable()) != 0 {
		t.Fatalf("got %v, %v", table, err)
	}
	if _, err := table.Plan(key, routing.Query{Effort: low}, nil); reason(err) != status.NoVendorKey {
		t.Errorf("got %v, want no_vendor_key", err)
	}
}

func TestTable_PrintsNoSecret(t *testing.T) {
	table := compile(t, config([]*ktmsv1.ModelSpec{model("a", vendors.OpenAI)}))
	plan, err := table.Plan(key, routing.Query{Effort: low}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Candidates[0].Target.Key.Reveal(); got != "secret of k" {
		t.Fatalf("the key is %q", got)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		if got := fmt.Sprintf(verb, table); strings.Contains(got, "secret of") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, plan); strings.Contains(got, "secret of") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	if got := fmt.Sprint(table); got != "routing table, version 7" {
		t.Errorf("got %q", got)
	}
}

func TestTable_Lookups(t *testing.T) {
	cfg := base(rule("r", 1, []string{"any"}), rule("off", 2, []string{"any"}, func(r *ktmsv1.RuleSpec) { r.Enabled = false }))
	cfg.Teams = []store.Team{{ID: "t", Name: "search", MonthlyBudgetNanoUSD: 5}}
	table := compile(t, cfg)
	if got := table.Version(); got != 7 {
		t.Errorf("Version: got %d", got)
	}
	if m, ok := table.Model("voice"); !ok || m.GetId() != "voice" {
		t.Errorf("Model: got %v, %v", m, ok)
	}
	if _, ok := table.Model("gone"); ok {
		t.Error("Model: found one that is not there")
	}
	if r, ok := table.Rule("r"); !ok || r.GetName() != "r" {
		t.Errorf("Rule: got %v, %v", r, ok)
	}
	if _, ok := table.Rule("off"); ok {
		t.Error("Rule: found a disabled one")
	}
	if tm, ok := table.Team("t"); !ok || tm.MonthlyBudgetNanoUSD != 5 {
		t.Errorf("Team: got %v, %v", tm, ok)
	}
	if _, ok := table.Team(""); ok {
		t.Error("Team: found one without id")
	}
	for _, test := range []struct {
		name string
		cfg  *store.Config
		want bool
	}{
		{"nothing", &store.Config{}, false},
		{"models alone", base(), false},
		{"both", base(fallback), true},
	} {
		if got := compile(t, test.cfg).Configured(); got != test.want {
			t.Errorf("Configured with %s: got %v", test.name, got)
		}
	}
}
