package routing_test

import (
	"fmt"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/vendors"
)

func abc(weights ...int32) []*ktmsv1.RuleSpec {
	return []*ktmsv1.RuleSpec{rule("default", 1, []string{"a", "b", "c"}, weighted(weights...))}
}

var threeModels = []*ktmsv1.ModelSpec{
	model("a", vendors.OpenAI), model("b", vendors.OpenAI), model("c", vendors.OpenAI),
}

// lead returns the model that a plan starts with.
func lead(t testing.TB, table *routing.Table, q routing.Query) string {
	t.Helper()
	if q.Effort == unspecified {
		q.Effort = low
	}
	plan, err := table.Plan(key, q, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Candidates[0].Target.Model
}

func TestPlan_WeightsShareDrawsExactly(t *testing.T) {
	table := compile(t, config(threeModels, abc(70, 25, 5)...))
	got := map[string]int{}
	for i := range 1000 {
		got[lead(t, table, routing.Query{Draw: (float64(i) + 0.5) / 1000})]++
	}
	if got["a"] != 700 || got["b"] != 250 || got["c"] != 50 {
		t.Errorf("got %v, want 700, 250, 50", got)
	}
}

func TestPlan_WeightsAtTheEdges(t *testing.T) {
	table := compile(t, config(threeModels, abc(1, 1, 2)...))
	huge := compile(t, config(threeModels, abc(1<<31-1, 1<<31-1, 1<<31-1)...))
	for _, test := range []struct {
		table *routing.Table
		draw  float64
		want  string
	}{
		{table, 0, "a"}, {table, 0.2499, "a"}, {table, 0.25, "b"}, {table, 0.5, "c"}, {table, 0.9999999999999999, "c"},
		{table, 1, "c"}, {table, -1, "a"}, {huge, 0.3, "a"}, {huge, 0.5, "b"}, {huge, 0.9999999999999999, "c"},
	} {
		if got := lead(t, test.table, routing.Query{Draw: test.draw}); got != test.want {
			t.Errorf("draw %v: got %s, want %s", test.draw, got, test.want)
		}
	}
}

func TestPlan_WithoutWeightsTheFirstLeads(t *testing.T) {
	table := compile(t, config(threeModels, abc()...))
	for i := range 50 {
		q := routing.Query{Draw: float64(i) / 50, Attributes: attributes("user_id", fmt.Sprint(i))}
		if got := lead(t, table, q); got != "a" {
			t.Fatalf("got %s", got)
		}
	}
}

func TestPlan_ThePickedLeadsTheOthersKeepTheirOrder(t *testing.T) {
	models := []*ktmsv1.ModelSpec{
		model("c1", vendors.OpenAI), model("n1", vendors.Local), model("c2", vendors.OpenAI), model("n2", vendors.Ollama),
		model("c3", vendors.OpenAI),
	}
	use := []string{"c1", "n1", "c2", "n2", "c3"}
	table := compile(t, config(models, rule("default", 1, use, weighted(1, 1, 1, 1, 1))))
	for _, test := range []struct {
		placement routing.Placement
		pick      int
		want      string
	}{
		{"", 0, "n1 n2 c1 c2 c3"},
		{routing.NodesFirst, 2, "n1 n2 c2 c1 c3"},
		{routing.NodesFirst, 3, "n2 n1 c1 c2 c3"},
		{routing.CloudFirst, 0, "c1 c2 c3 n1 n2"},
		{routing.CloudFirst, 4, "c3 c1 c2 n1 n2"},
		{routing.CloudFirst, 3, "c1 c2 c3 n2 n1"},
		{routing.NodesOnly, 0, "c1!placement n1 c2!placement n2 c3!placement"},
		{routing.NodesOnly, 3, "n2 c1!placement n1 c2!placement c3!placement"},
		{routing.NodesOnly, 4, "c3!placement c1!placement n1 c2!placement n2"},
		{routing.CloudOnly, 2, "c2 c1 n1!placement n2!placement c3"},
	} {
		q := routing.Query{Effort: low, Placement: test.placement, Draw: (float64(test.pick) + 0.5) / 5}
		plan, err := table.Plan(key, q, nil)
		if got := outline(plan); got != test.want || err != nil {
			t.Errorf("%s, pick %d: got %s, %v; want %s", test.placement, test.pick, got, err, test.want)
		}
	}
}

func TestPlan_StickyKeys(t *testing.T) {
	table := compile(t, config(threeModels, abc(1, 1, 1)...))
	// Two draws that lead to different models, so that an equal lead proves that the draw was not asked.
	const left, right = 0.1, 0.9
	for _, test := range []struct {
		name       string
		attributes map[string]string
		sticky     bool
	}{
		{"nothing", nil, false},
		{"a user", attributes("user_id", "u-42"), true},
		{"a canary key", attributes("canary_key", "x"), true},
		{"empty ones", attributes("canary_key", "", "user_id", ""), false},
		{"an empty canary key leaves the user", attributes("canary_key", "", "user_id", "u-42"), true},
		{"random", attributes("canary_key", "x", "user_id", "u-42", "canary_mode", "random"), false},
		{"another mode", attributes("user_id", "u-42", "canary_mode", "sticky"), true},
	} {
		a := lead(t, table, routing.Query{Attributes: test.attributes, Draw: left})
		b := lead(t, table, routing.Query{Attributes: test.attributes, Draw: right})
		if (a == b) != test.sticky {
			t.Errorf("%s: got %s and %s, want sticky %v", test.name, a, b, test.sticky)
		}
	}
	for i := range 100 {
		user := fmt.Sprint("u-", i)
		alone := lead(t, table, routing.Query{Attributes: attributes("canary_key", "x")})
		both := lead(t, table, routing.Query{Attributes: attributes("canary_key", "x", "user_id", user)})
		if alone != both {
			t.Fatalf("user %s moved the canary key from %s to %s", user, alone, both)
		}
	}
}

// TestPlan_StickyPicksOutliveReleases pins the pick of some keys. A change here moves users between the arms of
// experiments that are running somewhere.
func TestPlan_StickyPicksOutliveReleases(t *testing.T) {
	table := compile(t, config(threeModels, abc(50, 30, 20)...))
	got := ""
	for i := range 24 {
		got += lead(t, table, routing.Query{Attributes: attributes("user_id", fmt.Sprint("u-", i))})
	}
	if want := "babbbbacabbaaabaabcaccaa"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPlan_StickyPicksFollowTheWeights(t *testing.T) {
	table := compile(t, config(threeModels, abc(90, 9, 1)...))
	const users = 20000
	got := map[string]float64{}
	for i := range users {
		got[lead(t, table, routing.Query{Attributes: attributes("user_id", fmt.Sprint("user-", i))})]++
	}
	// Chi-squared with two degrees of freedom: 13.8 is passed once in a thousand by chance, and nothing here is chance.
	chi := 0.0
	for id, share := range map[string]float64{"a": 0.9, "b": 0.09, "c": 0.01} {
		want := share * users
		chi += (got[id] - want) * (got[id] - want) / want
	}
	if chi > 13.8 {
		t.Errorf("got %v, chi-squared %.1f", got, chi)
	}
}

// TestPlan_RulesSplitUsersIndependently guards against a salt that merely swaps the arms: half of the users must sit
// in the same arm of two rules with equal weights.
func TestPlan_RulesSplitUsersIndependently(t *testing.T) {
	two := []string{"a", "b"}
	table := compile(t, config(threeModels, rule("default", 1, two, weighted(1, 1)),
		rule("first", 2, two, weighted(1, 1), at(medium)), rule("second", 3, two, weighted(1, 1), at(high))))
	const users = 10000
	same := 0
	for i := range users {
		who := attributes("user_id", fmt.Sprint("u", i))
		if lead(t, table, routing.Query{Effort: medium, Attributes: who}) ==
			lead(t, table, routing.Query{Effort: high, Attributes: who}) {
			same++
		}
	}
	if same < users*48/100 || same > users*52/100 {
		t.Errorf("%d of %d users have the same arm in both rules, want about half", same, users)
	}
}
