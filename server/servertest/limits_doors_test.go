package servertest_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// limitCase is one limit and what its refusal is on every door.
type limitCase struct {
	name string
	// arrange sets the limit and uses it up, so that the next call of this kind is refused.
	arrange func(t *testing.T, l *limited, name string) (key string, a ask)
	// reason is ours; where machines read another one, it is read.
	reason, read string
	code         connect.Code
	http         int
	kind         string
	wait         time.Duration
	again        string
	says         []string
	rates        map[string]string
}

const (
	untilTomorrow  = 12 * time.Hour
	untilNextMonth = (14*24 + 12) * time.Hour
	tomorrow       = "resets at 2026-11-17T00:00:00Z"
	nextMonth      = "resets at 2026-12-01T00:00:00Z"
)

// once makes the call that uses a limit up, and waits until it is booked.
func (l *limited) once(t *testing.T, name, key string, a ask) {
	t.Helper()
	if got := l.openai(t.Context(), t, key, a); !got.ok() {
		t.Fatalf("the first call of %s: %+v", name, got)
	}
}

func rates(unit, limit, remaining, reset string) map[string]string {
	return map[string]string{"limit-" + unit: limit, "remaining-" + unit: remaining, "reset-" + unit: reset}
}

// outOfMoney is the case of a spend limit; caps sets it to a thousandth of a dollar, of which a call takes 0.000612.
func outOfMoney(name, whose, period string, wait time.Duration, resets string, caps func(t *testing.T, l *limited, name string) (subject, key string)) limitCase {
	return limitCase{
		name: name, reason: "throttled:" + name, read: "insufficient_quota", code: connect.CodeResourceExhausted,
		http: http.StatusTooManyRequests, kind: "insufficient_quota", wait: wait, again: "false", rates: map[string]string{},
		says: []string{whose + " has spent 0.000612 of its 0.001 USD of " + period + ", and this call may cost up to 0.000612; it " + resets},
		arrange: func(t *testing.T, l *limited, name string) (string, ask) {
			subject, key := caps(t, l, name)
			l.models(t, l.priced("m-"+name, nil))
			a := ask{model: "m-" + name, maxTokens: answerTokens, user: "u-" + name}
			l.once(t, name, key, a)
			kind, of, _ := strings.Cut(subject, "/")
			when := "day"
			if period == "this month" {
				when = "month"
			}
			if got := l.settles(t, kind, of, when); got != callNano {
				t.Errorf("%s: %d are booked, want %d", name, got, callNano)
			}
			return key, a
		},
	}
}

func limitCases() []limitCase {
	const milliUSD = 1_000_000
	capped := func(kind, period string) func(*testing.T, *limited, string) (string, string) {
		return func(t *testing.T, l *limited, name string) (string, string) {
			key := l.key(t, name, nil)
			id := name
			if kind == "user" {
				id = "u-" + name
			}
			l.caps(t, kind, id, period, milliUSD)
			return kind + "/" + id, key
		}
	}
	rate := limitCase{code: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, kind: "rate_limit_error"}
	with := func(c limitCase, name, reason string, wait time.Duration, rates map[string]string, says ...string) limitCase {
		c.name, c.reason, c.read, c.wait, c.rates, c.says = name, reason, reason, wait, rates, says
		return c
	}
	arranged := func(c limitCase, arrange func(t *testing.T, l *limited, name string) (string, ask)) limitCase {
		c.arrange = arrange
		return c
	}
	budget := rate
	budget.again = "false"
	tooLarge := limitCase{code: connect.CodeFailedPrecondition, http: http.StatusBadRequest, kind: "invalid_request_error"}

	return []limitCase{
		arranged(with(rate, "rpm", "throttled:rpm", time.Minute, rates("requests", "1", "0", "1m0s"),
			"the API key may make 1 requests a minute to this model", "in 1m0s"),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, func(m *ktmsv1.ModelSpec) { m.Rpm, m.RpmBurst = 1, -1 }))
				key := l.key(t, name, nil)
				l.once(t, name, key, ask{model: "m-" + name})
				return key, ask{model: "m-" + name}
			}),
		arranged(with(rate, "rpm_of_a_user", "throttled:rpm", 30*time.Second, rates("requests", "1", "0", "30s"),
			"the user may make 2 requests a minute to this model", "in 30s"),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, nil))
				l.must(t)(l.Admin.SetUserRateLimit(t.Context(), perMinute("u-"+name, "m-"+name, 2, -1)))
				key, a := l.key(t, name, nil), ask{model: "m-" + name, user: "u-" + name}
				l.once(t, name, key, a)
				return key, a
			}),
		arranged(with(rate, "key_rpm", "throttled:key_rpm", 30*time.Second, rates("requests", "2", "0", "1m0s"),
			"the API key may make 2 requests a minute;", "in 30s"),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, nil))
				key := l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = &ktmsv1.APIKeyPolicy{RpmLimit: 2} })
				l.once(t, name, key, ask{model: "m-" + name})
				l.once(t, name, key, ask{model: "m-" + name})
				return key, ask{model: "m-" + name}
			}),
		// The first call was estimated at 6 and came to 66, so that 12 tokens have to drain before the next 6 fit.
		arranged(with(rate, "key_tpm", "throttled:key_tpm", 12*time.Second, rates("tokens", "60", "0", "1m6s"),
			"the API key may use 60 tokens a minute, and this request has about 6", "in 12s"),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, nil))
				key := l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = &ktmsv1.APIKeyPolicy{TpmLimit: 60} })
				l.once(t, name, key, ask{model: "m-" + name})
				storetest.Eventually(t, patience, "the tokens are booked", func() bool { return l.used(t, 60, "key_tpm", name) == 60 })
				return key, ask{model: "m-" + name}
			}),
		arranged(with(tooLarge, "request_too_large", "request_too_large", 0, map[string]string{},
			"about 6 tokens, more than the 5 that the API key may use in a minute", "tpm_limit"),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, nil))
				key := l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = &ktmsv1.APIKeyPolicy{TpmLimit: 5} })
				return key, ask{model: "m-" + name}
			}),
		arranged(with(budget, "budget_key", "throttled:budget_key", untilTomorrow, rates("tokens", "100", "34", "12h0m0s"),
			"the API key has used 66 of its 100 tokens of today with this model, and this call may need 66", tomorrow),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, func(m *ktmsv1.ModelSpec) { m.DailyTokensPerKey = 100 }))
				key, a := l.key(t, name, nil), ask{model: "m-" + name, maxTokens: answerTokens}
				l.once(t, name, key, a)
				l.booked(t, "key", name, "m-"+name, callTokens)
				return key, a
			}),
		arranged(with(budget, "budget_user", "throttled:budget_user", untilTomorrow, rates("tokens", "100", "34", "12h0m0s"),
			"the user has used 66 of its 100 tokens of today with this model, and this call may need 66", tomorrow),
			func(t *testing.T, l *limited, name string) (string, ask) {
				l.models(t, l.priced("m-"+name, func(m *ktmsv1.ModelSpec) { m.DailyTokensPerUser = 100 }))
				key, a := l.key(t, name, nil), ask{model: "m-" + name, maxTokens: answerTokens, user: "u-" + name}
				l.once(t, name, key, a)
				l.booked(t, "user", "u-"+name, "m-"+name, callTokens)
				return key, a
			}),
		outOfMoney("spend_key_daily", "the API key", "today", untilTomorrow, tomorrow, capped("key", "day")),
		outOfMoney("spend_key_monthly", "the API key", "this month", untilNextMonth, nextMonth, capped("key", "month")),
		outOfMoney("spend_user_daily", "the user", "today", untilTomorrow, tomorrow, capped("user", "day")),
		outOfMoney("spend_user_monthly", "the user", "this month", untilNextMonth, nextMonth, capped("user", "month")),
		outOfMoney("spend_team_monthly", "the team", "this month", untilNextMonth, nextMonth,
			func(t *testing.T, l *limited, name string) (string, string) {
				org, team := l.team(t, name, 0.001)
				return "team/" + team, l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.OrgId, r.TeamId = org, team })
			}),
	}
}

// booked waits until a daily budget stands at so many tokens, with none reserved.
func (l *limited) booked(t *testing.T, kind, id, model string, tokens int64) {
	t.Helper()
	storetest.Eventually(t, patience, "the tokens are booked", func() bool {
		s := l.tokens(t, kind, id, model)
		return s.Settled == tokens && s.Reserved == 0
	})
}

// TestLimits_EveryLimitOnEveryDoor: one refusal, in the words of each door, of calls in one piece and of streams.
func TestLimits_EveryLimitOnEveryDoor(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		for _, one := range limitCases() {
			t.Run(one.name, func(t *testing.T) {
				counted := strings.TrimPrefix(one.reason, "throttled:")
				before := metric(t, l.Instance, "ktms_throttled_total", `"`+counted+`"`)
				key, a := one.arrange(t, l, one.name)
				asked, calls := len(l.script.bodies(a.model)), 0.0
				for through, call := range l.doors() {
					for _, a.stream = range []bool{false, true} {
						got := call(t.Context(), t, key, a)
						one.check(t, through, a.stream, got)
						calls++
					}
				}
				if n := len(l.script.bodies(a.model)); n != asked {
					t.Errorf("the vendor was asked %d times by calls that were refused", n-asked)
				}
				if one.reason == "request_too_large" { // is for good, and no throttling
					calls = 0
				}
				if got := metric(t, l.Instance, "ktms_throttled_total", `"`+counted+`"`) - before; got != calls {
					t.Errorf("%v refusals are counted, want %v", got, calls)
				}
			})
		}
	})
}

func (c *limitCase) check(t *testing.T, through string, stream bool, got seen) {
	t.Helper()
	want := seen{code: c.code, http: http.StatusOK, reason: c.read, wait: c.wait}
	if through == "openai" {
		want = seen{http: c.http, reason: c.read, kind: c.kind, again: c.again, wait: c.wait}
	}
	if got.code != want.code || got.http != want.http || got.reason != want.reason || got.kind != want.kind || got.again != want.again || got.wait != want.wait {
		t.Errorf("%s, stream %v:\n got %+v\nwant %+v", through, stream, got, want)
	}
	if !maps.Equal(got.rates, c.rates) {
		t.Errorf("%s, stream %v: the headers say %v, want %v", through, stream, got.rates, c.rates)
	}
	for _, text := range append(c.says, c.reason+": ") {
		if !strings.Contains(got.message, text) {
			t.Errorf("%s, stream %v: %q does not say %q", through, stream, got.message, text)
		}
	}
	if rest := strings.ReplaceAll(got.message, c.reason, ""); strings.Contains(rest, c.name) {
		t.Errorf("%s, stream %v: %q names the key or the user", through, stream, got.message)
	}
}

// TestLimits_EmbeddingsAreHeldToThem: the same limits on calls for vectors, of 3 tokens by estimate and 6 by the vendor's
// count.
func TestLimits_EmbeddingsAreHeldToThem(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		for name, one := range map[string]struct {
			model  func(*ktmsv1.ModelSpec)
			policy *ktmsv1.APIKeyPolicy
			nano   int64
			allow  bool
			reason string
			wait   time.Duration
		}{
			"model-rpm": {model: func(m *ktmsv1.ModelSpec) { m.Rpm = 1 }, allow: true, reason: "throttled:rpm", wait: time.Minute},
			"key-rpm":   {policy: &ktmsv1.APIKeyPolicy{RpmLimit: 1}, allow: true, reason: "throttled:key_rpm", wait: time.Minute},
			"key-tpm":   {policy: &ktmsv1.APIKeyPolicy{TpmLimit: 6}, allow: true, reason: "throttled:key_tpm", wait: 30 * time.Second},
			"too-large": {policy: &ktmsv1.APIKeyPolicy{TpmLimit: 2}, reason: "request_too_large"},
			"budget":    {model: func(m *ktmsv1.ModelSpec) { m.DailyTokensPerKey = 8 }, allow: true, reason: "throttled:budget_key", wait: untilTomorrow},
			"spend":     {nano: 6*promptNano + 3*promptNano - 1, allow: true, reason: "insufficient_quota", wait: untilTomorrow},
		} {
			t.Run(name, func(t *testing.T) {
				model := "m-" + name
				l.script.on(model, embed)
				l.models(t, l.priced(model, func(m *ktmsv1.ModelSpec) {
					m.Capabilities = []string{"embedding"}
					if one.model != nil {
						one.model(m)
					}
				}))
				key := l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = one.policy })
				if one.nano > 0 {
					l.caps(t, "key", name, "day", one.nano)
				}
				a := ask{model: model, embed: true}
				if one.allow {
					l.once(t, name, key, a)
				}
				switch name {
				case "key-tpm":
					storetest.Eventually(t, patience, "the tokens are booked", func() bool { return l.used(t, 6, "key_tpm", name) == 6 })
				case "budget":
					l.booked(t, "key", name, model, 6)
				case "spend":
					if got := l.settles(t, "key", name, "day"); got != 6*promptNano {
						t.Errorf("%d are booked", got)
					}
				}
				for through, call := range l.doors() {
					if got := call(t.Context(), t, key, a); got.reason != one.reason || got.wait != one.wait {
						t.Errorf("%s: %+v, want %s and %v", through, got, one.reason, one.wait)
					}
				}
			})
		}
	})
}

// TestLimits_AnswersSayHowFarTheCallerIs: the tightest rate of each unit, on every door.
func TestLimits_AnswersSayHowFarTheCallerIs(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.script.on("vectors", embed)
		l.models(t, l.priced("m", func(m *ktmsv1.ModelSpec) { m.Rpm = 10 }), l.priced("free", nil),
			l.priced("burst", func(m *ktmsv1.ModelSpec) { m.Rpm, m.RpmBurst = 10, 29 }),
			l.priced("vectors", func(m *ktmsv1.ModelSpec) { m.Rpm, m.Capabilities = 10, []string{"embedding"} }))
		policy := &ktmsv1.APIKeyPolicy{RpmLimit: 100, TpmLimit: 6000}
		both := rates("requests", "10", "9", "6s")
		maps.Copy(both, rates("tokens", "6000", "5994", "60ms"))
		vectors := maps.Clone(both)
		maps.Copy(vectors, rates("tokens", "6000", "5997", "30ms"))
		keys := 0
		for through, call := range l.doors() {
			for _, one := range []struct {
				a      ask
				policy *ktmsv1.APIKeyPolicy
				want   map[string]string
			}{
				{ask{model: "m"}, policy, both}, {ask{model: "m", stream: true}, policy, both},
				{ask{model: "vectors", embed: true}, policy, vectors},
				{ask{model: "burst"}, nil, rates("requests", "30", "29", "6s")}, // as many as go at once
				{ask{model: "free"}, nil, map[string]string{}}, {ask{model: "free", stream: true}, nil, map[string]string{}},
			} {
				keys++
				key := l.key(t, "key"+strings.Repeat("y", keys), func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = one.policy })
				if got := call(t.Context(), t, key, one.a); !got.ok() || !maps.Equal(got.rates, one.want) {
					t.Errorf("%s %+v: %+v, want %v", through, one.a, got, one.want)
				}
			}
		}
	})
}

// TestLimits_ThrottlingIsExportedAtZero, so that an alert sees the first refusal after a start.
func TestLimits_ThrottlingIsExportedAtZero(t *testing.T) {
	l := limitedBy(t, counters{}, nil)
	families, err := l.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, family := range families {
		if family.GetName() != "ktms_throttled_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			reasons[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() == 0
		}
	}
	for _, c := range limitCases() {
		if counted := strings.TrimPrefix(c.reason, "throttled:"); counted != "request_too_large" && !reasons[counted] {
			t.Errorf("%s is not exported at 0", counted)
		}
	}
	if !reasons["spend_unavailable"] {
		t.Error("spend_unavailable is not exported at 0")
	}
}
