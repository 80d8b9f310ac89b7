package routing_test

import (
	"errors"
	"fmt"
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

func TestPlan_Refusals(t *testing.T) {
	cfg := config([]*ktmsv1.ModelSpec{
		model("a", vendors.OpenAI, taking(100), serving(low)),
		model("b", vendors.OpenAI, taking(500), can("vision")),
		model("c", vendors.Groq),
		model("off", vendors.OpenAI, disabled),
		model("node", vendors.Local, disabled),
	},
		rule("default", 1, []string{"a", "b"}),
		rule("keyless", 2, []string{"c"}, when("r", "keyless")),
		rule("mixed", 3, []string{"off", "c", "b"}, when("r", "mixed")),
		rule("off", 4, []string{"off", "node"}, when("r", "off")),
		rule("off-c", 5, []string{"off", "c"}, when("r", "off-c")),
	)
	cfg.VendorKeys = []store.VendorKey{credential("k", vendors.OpenAI), credential("stranger", vendors.Groq)}
	cfg.Teams = []store.Team{{ID: "t", AllowedModels: []string{"b"}}}
	table := compile(t, cfg)

	plain := &caller.Caller{KeyID: "k"}
	only := func(ids ...string) *caller.Caller { return &caller.Caller{KeyID: "k", AllowedModels: ids} }
	r := func(name string) map[string]string { return attributes("r", name) }
	pausedA, pausedB := "openai|k/openai|a", "openai|k/openai|b"

	for _, test := range []struct {
		name   string
		caller *caller.Caller
		query  routing.Query
		view   routing.View
		reason status.Reason
		text   string
		param  string
		retry  time.Duration
	}{
		{"an unknown model", plain, routing.Query{Model: "nope"}, nil, status.ModelNotFound,
			`model_not_found: model "nope" is not in the catalogue; GET /v1/models or ListModels lists those that this key can use`, "model", 0},
		{"an unknown model and a list", only("a"), routing.Query{Model: "nope"}, nil, status.ModelNotFound, `model_not_found: model "nope"`, "model", 0},
		{"a model that the key's list lacks", only("b"), routing.Query{Model: "a"}, nil, status.ModelNotAllowed,
			`model "a" not allowed for key`, "model", 0},
		{"a model that the team's list lacks", &caller.Caller{KeyID: "k", TeamID: "t"}, routing.Query{Model: "a"}, nil,
			status.ModelNotAllowed, `model "a" not allowed for team`, "model", 0},
		{"a chain outside the key's list", only("c"), routing.Query{Effort: low}, nil, status.ModelNotAllowed,
			"no models in chain allowed for key", "", 0},
		{"a chain outside the team's list", &caller.Caller{KeyID: "k", TeamID: "t"}, routing.Query{Effort: low, Attributes: r("keyless")}, nil,
			status.ModelNotAllowed, "no models in chain allowed for team", "", 0},
		{"the rest of one list is outside the other", &caller.Caller{KeyID: "k", TeamID: "t", AllowedModels: []string{"a"}},
			routing.Query{Effort: low}, nil, status.ModelNotAllowed, "no models in chain allowed for team", "", 0},
		{"policy before a disabled model", only("x"), routing.Query{Effort: low, Attributes: r("off-c")}, nil,
			status.ModelNotAllowed, "no models in chain allowed for key", "", 0},

		{"no credential", plain, routing.Query{Effort: low, Attributes: r("keyless")}, nil, status.NoVendorKey,
			`no_vendor_key: no model of rule "keyless" can be called: the key holds no credential for groq; an administrator assigns one with SetVendorKey`, "", 0},
		{"no credential for a named model", plain, routing.Query{Model: "c"}, nil, status.NoVendorKey,
			"no_vendor_key: the named model cannot be called: the key holds no credential for groq", "", 0},
		{"no credential beside what policy removed", only("c"), routing.Query{Effort: low, Attributes: r("mixed")}, nil, status.NoVendorKey,
			`no_vendor_key: no model of rule "mixed" can be called: the key holds no credential for groq;`, "", 0},
		{"the bootstrap key holds none", &caller.Caller{}, routing.Query{Effort: low, Attributes: r("mixed")}, nil, status.NoVendorKey,
			`no_vendor_key: no model of rule "mixed" can be called: the key holds no credential for groq, openai;`, "", 0},

		{"nothing is enabled", plain, routing.Query{Effort: low, Attributes: r("off")}, nil, status.NoCapableModel,
			`no_capable_model: no model of rule "off" can serve this request: node is disabled; off is disabled`, "", 0},
		{"a disabled model", plain, routing.Query{Model: "off"}, nil, status.NoCapableModel,
			"no_capable_model: the named model cannot serve this request: off is disabled", "", 0},
		{"one thing each", plain, routing.Query{Effort: high, Needs: []string{"pdf_input"}}, nil, status.NoCapableModel,
			`no_capable_model: no model of rule "default" can serve this request: a does not serve high effort; b lacks the capability pdf_input`, "", 0},
		{"what policy hides is not listed", only("b"), routing.Query{Effort: high, Needs: []string{"pdf_input"}}, nil, status.NoCapableModel,
			`no_capable_model: no model of rule "default" can serve this request: b lacks the capability pdf_input`, "", 0},
		{"other obstacles are listed", plain, routing.Query{Effort: high, Placement: routing.NodesOnly, Attributes: r("mixed")}, nil, status.NoCapableModel,
			`no_capable_model: no model of rule "mixed" can serve this request: off is disabled; c needs a credential for groq, which the key does not hold; b runs in the cloud, which nodes_only excludes`, "", 0},

		{"too long for all", plain, routing.Query{Effort: low, Tokens: 501}, nil, status.ContextTooLong,
			"context_length_exceeded: the maximum context length is 500 tokens, but prompt and answer need about 501", "", 0},
		{"too long for the only one that could", plain, routing.Query{Effort: high, Tokens: 501}, nil, status.ContextTooLong,
			"context_length_exceeded: the maximum context length is 500 tokens", "", 0},
		{"too long for a named model", plain, routing.Query{Model: "a", Tokens: 101}, nil, status.ContextTooLong,
			"context_length_exceeded: the maximum context length is 100 tokens", "", 0},
		{"too long is no reason where another one remains", plain, routing.Query{Effort: low, Tokens: 501, Needs: []string{"pdf_input"}}, nil,
			status.NoCapableModel, "no_capable_model:", "", 0},

		{"every circuit is open", plain, routing.Query{Effort: low}, view{open: []string{"openai/a", "openai/b"}}, status.VendorsUnavailable,
			`vendors_unavailable: no model of rule "default" can be reached at the moment: a has an open circuit after repeated failures; b has`, "", 0},
		{"every model is paused", plain, routing.Query{Effort: low},
			view{paused: map[string]time.Duration{pausedA: 9 * time.Second, pausedB: 4 * time.Second}}, status.VendorsUnavailable,
			`vendors_unavailable: no model of rule "default" can be reached at the moment: a is paused by openai for another 9 s; b is paused by openai for another 4 s`, "", 4 * time.Second},
		{"a pause and a circuit promise nothing", plain, routing.Query{Effort: low},
			view{open: []string{"openai/b"}, paused: map[string]time.Duration{pausedA: 9 * time.Second}}, status.VendorsUnavailable,
			"vendors_unavailable:", "", 0},
		{"a pause of all that remain", plain, routing.Query{Effort: high},
			view{paused: map[string]time.Duration{pausedB: 9 * time.Second}}, status.VendorsUnavailable, "vendors_unavailable:", "", 9 * time.Second},
		{"a circuit decides over what is too long", plain, routing.Query{Effort: low, Tokens: 200}, view{open: []string{"openai/b"}},
			status.VendorsUnavailable, `vendors_unavailable: no model of rule "default" can be reached at the moment: b has an open`, "", 0},

		{"no effort", plain, routing.Query{}, nil, status.BadRequest, "bad_request: effort is required", "effort", 0},
		{"an effort that is none", plain, routing.Query{Effort: 12}, nil, status.BadRequest, "bad_request: effort 12", "effort", 0},
		{"a placement that is none", plain, routing.Query{Model: "a", Placement: "moon"}, nil, status.BadRequest,
			`bad_request: placement "moon" is unknown`, "placement", 0},
		{"a modality that is none", plain, routing.Query{Modality: "smell"}, nil, status.BadRequest, "bad_request: modality", "", 0},
		{"a modality without a rule", plain, routing.Query{Modality: routing.Image}, nil, status.NoCapableModel,
			"no_capable_model: no rule leads image calls to a model; an administrator adds one with the attribute modality=image", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := table.Plan(test.caller, test.query, test.view)
			var e *status.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want %s (%s)", err, test.reason, outline(plan))
			}
			if e.Reason != test.reason || !strings.HasPrefix(e.Message(), test.text) {
				t.Errorf("got %s: %q, want %s: %q", e.Reason, e.Message(), test.reason, test.text)
			}
			if e.RetryAfter != test.retry || e.Param != test.param {
				t.Errorf("got retry %v, param %q; want %v, %q", e.RetryAfter, e.Param, test.retry, test.param)
			}
			if plan == nil || plan.Version != 7 {
				t.Errorf("got plan %+v, want one to explain", plan)
			}
			if strings.Contains(e.Message(), "secret of") || strings.Contains(e.Message(), "stranger") {
				t.Errorf("the text says too much: %q", e.Message())
			}
		})
	}
}

func TestPlan_UnknownModelIsExplained(t *testing.T) {
	plan, _ := compile(t, base()).Plan(key, routing.Query{Model: "nope"}, nil)
	if got := outline(plan); got != "nope!unknown_model" || plan.Candidates[0].Spec != nil {
		t.Errorf("got %s, %+v", got, plan)
	}
}

func TestPlan_NotConfigured(t *testing.T) {
	for _, test := range []struct {
		name  string
		cfg   *store.Config
		query routing.Query
		want  status.Reason
		text  string
	}{
		{"nothing", &store.Config{}, routing.Query{Effort: low}, status.NotConfigured, "not_configured: no models configured yet;"},
		{"nothing, with a model named", &store.Config{}, routing.Query{Model: "x"}, status.NotConfigured, "not_configured: no models"},
		{"no rules", base(), routing.Query{Effort: low}, status.NotConfigured, "not_configured: no rules configured yet"},
		{"no rules for speech", base(), routing.Query{Modality: routing.Speech}, status.NotConfigured, "not_configured: no rules"},
		{"no rules, with a model named", base(), routing.Query{Model: "any"}, "", ""},
		{"no rules, with an unknown model named", base(), routing.Query{Model: "x"}, status.ModelNotFound, "model_not_found:"},
		{"the request's own mistake first", &store.Config{}, routing.Query{}, status.BadRequest, "bad_request:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := compile(t, test.cfg).Plan(key, test.query, nil)
			if reason(err) != test.want || err != nil && !strings.HasPrefix(err.Error(), test.text) {
				t.Errorf("got %v, want %s %q", err, test.want, test.text)
			}
		})
	}
}

func TestPlan_LongChainsAreSummedUp(t *testing.T) {
	var models []*ktmsv1.ModelSpec
	for i := range 9 {
		models = append(models, model(fmt.Sprint("m", i), vendors.OpenAI))
	}
	_, err := compile(t, config(models)).Plan(key, routing.Query{Effort: low, Needs: []string{"vision"}}, nil)
	if reason(err) != status.NoCapableModel || !strings.HasSuffix(err.Error(), "m4 lacks the capability vision; and 4 more") {
		t.Errorf("got %v", err)
	}
}
