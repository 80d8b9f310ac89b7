package routing_test

import (
	"fmt"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// manyRules has n rules, each with one or two attributes, above a weighted catch-all: the longest way through.
func manyRules(n int) *store.Config {
	models := []*ktmsv1.ModelSpec{
		model("gpt-4o-mini", vendors.OpenAI), model("claude-haiku", vendors.Anthropic), model("qwen3:32b", vendors.Local),
	}
	use := []string{"gpt-4o-mini", "claude-haiku", "qwen3:32b"}
	rules := []*ktmsv1.RuleSpec{rule("default", 0, use, weighted(90, 9, 1))}
	for i := 1; i < n; i++ {
		pairs := []string{"language", fmt.Sprint("l", i)}
		if i%2 == 0 {
			pairs = append(pairs, "task", "summary")
		}
		rules = append(rules, rule(fmt.Sprint("rule-", i), int32(i), use, when(pairs...)))
	}
	return config(models, rules...)
}

// calm is a View that costs next to nothing.
type calm struct{}

func (calm) Speaks(string) bool                  { return true }
func (calm) CircuitOpen(_, _ string) bool        { return false }
func (calm) Absent(string) string                { return "" }
func (calm) Paused(_, _, _ string) time.Duration { return 0 }

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 50, 10000} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			table := compile(b, manyRules(n))
			c := &caller.Caller{KeyID: "k", OrgID: "acme"}
			q := routing.Query{
				Effort: medium, Attributes: attributes("language", "es", "task", "summary", "user_id", "u-42"), Tokens: 900,
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Plan(c, q, calm{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	cfg := manyRules(50)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := routing.Compile(cfg, open); err != nil {
			b.Fatal(err)
		}
	}
}
