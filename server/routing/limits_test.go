package routing_test

import (
	"fmt"
	"slices"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/store"
)

func spends(subjectType, subjectID, period string, nanoUSD int64) *ktmsv1.SpendLimit {
	return &ktmsv1.SpendLimit{SubjectType: subjectType, SubjectId: subjectID, Period: period, LimitNanousd: nanoUSD}
}

func perMinute(userID, modelID string, rpm, burst int32) *ktmsv1.UserRateLimit {
	return &ktmsv1.UserRateLimit{UserId: userID, ModelId: modelID, Rpm: rpm, RpmBurst: burst}
}

func TestTable_SpendCap(t *testing.T) {
	table := compile(t, &store.Config{SpendLimits: []*ktmsv1.SpendLimit{
		spends("key", "*", "day", 10), spends("key", "billing", "day", 20), spends("key", "billing", "month", 300),
		spends("user", "*", "month", 40), spends("user", "u", "day", 5), spends("user", "billing", "month", 6),
	}})
	for _, test := range []struct {
		subjectType, subjectID, period string
		want                           int64
	}{
		{"key", "billing", "day", 20}, {"key", "billing", "month", 300},
		{"key", "other", "day", 10}, {"key", "other", "month", 0}, {"key", "", "day", 10}, {"key", "*", "day", 10},
		{"user", "u", "day", 5}, {"user", "u", "month", 40}, {"user", "other", "day", 0}, {"user", "billing", "month", 6},
		{"user", "svc:billing", "month", 40}, {"team", "u", "day", 0}, {"user", "u", "year", 0},
	} {
		if got := table.SpendCap(test.subjectType, test.subjectID, test.period); got != test.want {
			t.Errorf("%s %q by the %s: got %d, want %d", test.subjectType, test.subjectID, test.period, got, test.want)
		}
	}
}

// TestTable_UserRate takes the rows away from the most specific one on, for a user and a model that all of them are for.
func TestTable_UserRate(t *testing.T) {
	rows := []*ktmsv1.UserRateLimit{
		perMinute("u", "m", 1, -1), perMinute("u", "*", 2, 0), perMinute("*", "m", 3, 7), perMinute("*", "*", 4, 0),
	}
	others := []*ktmsv1.UserRateLimit{
		perMinute("v", "m", 90, 0), perMinute("v", "*", 91, 0), perMinute("u", "n", 92, 0), perMinute("*", "n", 93, 0),
	}
	for i := range rows {
		table := compile(t, &store.Config{UserRateLimits: slices.Concat(others, rows[i:])})
		if rpm, burst := table.UserRate("u", "m"); rpm != rows[i].GetRpm() || burst != rows[i].GetRpmBurst() {
			t.Errorf("without the first %d: got %d and %d, want those of %v", i, rpm, burst, rows[i])
		}
		// A row of 0 lifts whatever is less specific.
		lifting := perMinute(rows[i].GetUserId(), rows[i].GetModelId(), 0, 0)
		table = compile(t, &store.Config{UserRateLimits: append([]*ktmsv1.UserRateLimit{lifting}, rows[i+1:]...)})
		if rpm, _ := table.UserRate("u", "m"); rpm != 0 {
			t.Errorf("lifted by %v: got %d", lifting, rpm)
		}
	}
	table := compile(t, &store.Config{UserRateLimits: others})
	if rpm, burst := table.UserRate("u", "m"); rpm != 0 || burst != 0 {
		t.Errorf("without a row: got %d and %d", rpm, burst)
	}
	if rpm, _ := table.UserRate("*", "n"); rpm != 93 {
		t.Errorf("a user who calls herself *: got %d, want what anyone gets", rpm)
	}
}

func TestTable_TeamBudget(t *testing.T) {
	table := compile(t, &store.Config{Teams: []store.Team{{ID: "t", MonthlyBudgetNanoUSD: 5}, {ID: "free"}}})
	for id, want := range map[string]int64{"t": 5, "free": 0, "newer": 0, "": 0} {
		if got := table.TeamBudget(id); got != want {
			t.Errorf("team %q: got %d, want %d", id, got, want)
		}
	}
}

// TestTable_LimitsBeforeLoad: a table that knows nothing limits nothing.
func TestTable_LimitsBeforeLoad(t *testing.T) {
	table := routing.NewLive(routing.Options{}).Table()
	if rpm, burst := table.UserRate("u", "m"); rpm != 0 || burst != 0 {
		t.Errorf("UserRate: got %d and %d", rpm, burst)
	}
	if spend, budget := table.SpendCap("key", "k", "day"), table.TeamBudget("t"); spend != 0 || budget != 0 {
		t.Errorf("SpendCap and TeamBudget: got %d and %d", spend, budget)
	}
}

// manyLimits has caps and rates for n users, and the rows for everyone that those without one fall back to.
func manyLimits(n int) *store.Config {
	cfg := &store.Config{}
	if n == 0 {
		return cfg
	}
	cfg.SpendLimits = append(cfg.SpendLimits, spends("key", "*", "day", 1), spends("user", "*", "month", 1))
	cfg.UserRateLimits = append(cfg.UserRateLimits, perMinute("*", "*", 60, 0))
	for i := range n {
		id := fmt.Sprint("user-", i)
		cfg.SpendLimits = append(cfg.SpendLimits, spends("user", id, "month", 5))
		cfg.UserRateLimits = append(cfg.UserRateLimits, perMinute(id, "gpt-4o-mini", 5, 0))
	}
	return cfg
}

// lookups are those of one call by a user who has no row: the caps of key, user and team, and the rate.
func lookups(table *routing.Table) (sum int64) {
	for _, period := range [...]string{"day", "month"} {
		sum += table.SpendCap("key", "billing", period) + table.SpendCap("user", "somebody-else", period)
	}
	rpm, _ := table.UserRate("somebody-else", "gpt-4o-mini")
	return sum + int64(rpm) + table.TeamBudget("t")
}

func TestTable_LimitsAllocateNothing(t *testing.T) {
	table := compile(t, manyLimits(100))
	if sum := lookups(table); sum != 62 {
		t.Fatalf("the lookups found %d", sum)
	}
	if allocated := testing.AllocsPerRun(100, func() { lookups(table) }); allocated != 0 {
		t.Errorf("the lookups of a call make %v allocations", allocated)
	}
}

func BenchmarkLimits(b *testing.B) {
	for _, n := range []int{0, 10, 10000} {
		b.Run(fmt.Sprint("users=", n), func(b *testing.B) {
			table := compile(b, manyLimits(n))
			b.ReportAllocs()
			for b.Loop() {
				lookups(table)
			}
		})
	}
}
