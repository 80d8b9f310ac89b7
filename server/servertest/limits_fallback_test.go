package servertest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// chain is a chain of two models under one limit each, on a server of its own, and what a call along it comes to.
type chain struct {
	name   string
	first  func(t *testing.T, l *limited, m *ktmsv1.ModelSpec)
	second func(t *testing.T, l *limited, m *ktmsv1.ModelSpec)
	// cap is what the key may spend in a day; 0 is no cap.
	cap int64
	// before are calls for one model that use its limits up.
	before []string
	// served is the model that answers; else reason, code and wait are those of the refusal.
	served string
	reason string
	code   connect.Code
	wait   time.Duration
	says   []string
}

// TestLimits_Fallback: a limit skips its model and not the call, and the call is refused with the wait that ends first.
func TestLimits_Fallback(t *testing.T) {
	t.Parallel()
	rpm := func(rpm, burst int32) func(*testing.T, *limited, *ktmsv1.ModelSpec) {
		return func(_ *testing.T, _ *limited, m *ktmsv1.ModelSpec) { m.Rpm, m.RpmBurst = rpm, burst }
	}
	budget := func(_ *testing.T, _ *limited, m *ktmsv1.ModelSpec) { m.DailyTokensPerKey = callTokens }
	dear := func(_ *testing.T, _ *limited, m *ktmsv1.ModelSpec) { m.PriceOutPerMtok = 1000 }
	failing := func(code int, headers ...string) func(*testing.T, *limited, *ktmsv1.ModelSpec) {
		return func(_ *testing.T, l *limited, m *ktmsv1.ModelSpec) {
			l.script.on(m.GetId(), fails(code, `{"error":{"message":"down"}}`, headers...))
		}
	}
	both := func(parts ...func(*testing.T, *limited, *ktmsv1.ModelSpec)) func(*testing.T, *limited, *ktmsv1.ModelSpec) {
		return func(t *testing.T, l *limited, m *ktmsv1.ModelSpec) {
			for _, part := range parts {
				part(t, l, m)
			}
		}
	}
	onBothMeters(t, func(t *testing.T, c counters) {
		for i, one := range []chain{
			{name: "a dear model beyond the cap", first: dear, cap: callNano, served: "second"},
			{name: "a model whose rate is reached", first: rpm(1, 0), before: []string{"first"}, served: "second"},
			{name: "a model whose budget is used", first: budget, before: []string{"first"}, served: "second"},
			{name: "two rates", first: rpm(1, 0), second: rpm(3, -1), before: []string{"first", "second"},
				reason: "throttled:rpm", code: connect.CodeResourceExhausted, wait: 20 * time.Second,
				says: []string{"first: ", "next one fits in 1m0s", "second: ", "next one fits in 20s"}},
			{name: "a cap and a rate", first: dear, second: rpm(2, -1), cap: 2 * callNano, before: []string{"second"},
				reason: "throttled:rpm", code: connect.CodeResourceExhausted, wait: 30 * time.Second,
				says: []string{"first: the API key has spent", "second: the API key may make"}},
			{name: "a budget and a cap", first: both(dear, budget), second: dear, cap: callNano - 1,
				reason: "insufficient_quota", code: connect.CodeResourceExhausted, wait: untilTomorrow},
			{name: "a vendor that fails and a rate", first: failing(500), second: rpm(1, 0), before: []string{"second"},
				reason: "vendors_unavailable", code: connect.CodeUnavailable},
			{name: "a rate and a vendor that fails", first: rpm(1, 0), second: failing(500), before: []string{"first"},
				reason: "vendors_unavailable", code: connect.CodeUnavailable},
			{name: "a vendor that refuses for good and a rate", first: failing(401), second: rpm(1, 0), before: []string{"second"},
				reason: "throttled:rpm", code: connect.CodeResourceExhausted, wait: time.Minute},
		} {
			t.Run(one.name, func(t *testing.T) {
				l := limitedBy(t, c, nil)
				first, second := l.priced("first", nil), l.priced("second", nil)
				if one.first != nil {
					one.first(t, l, first)
				}
				if one.second != nil {
					one.second(t, l, second)
				}
				l.models(t, first, second)
				one.check(t, l, fmt.Sprint("unary-", i), l.rpc(connecthttp.WithGRPC()), false)
				one.check(t, l, fmt.Sprint("stream-", i), l.openai, true)
			})
		}
	})
}

// check makes the call through a door with a key of its own.
func (one *chain) check(t *testing.T, l *limited, name string, call door, stream bool) {
	t.Helper()
	key := l.key(t, name, nil)
	if one.cap > 0 {
		l.caps(t, "key", name, "day", one.cap)
	}
	for _, model := range one.before {
		l.once(t, name, key, ask{model: model, maxTokens: answerTokens})
	}
	if one.cap > 0 {
		l.settles(t, "key", name, "day")
	}
	got := call(t.Context(), t, key, ask{maxTokens: answerTokens, stream: stream})
	if one.served != "" {
		if !got.ok() || got.model != one.served {
			t.Errorf("%s: %+v, want it served by %s", name, got, one.served)
		}
		return
	}
	if got.reason != one.reason || got.http == http.StatusOK && got.code != one.code || got.wait != one.wait {
		t.Errorf("%s: %+v, want %s and %v", name, got, one.reason, one.wait)
	}
	for _, text := range one.says {
		if !strings.Contains(got.message, text) {
			t.Errorf("%s: %q does not say %q", name, got.message, text)
		}
	}
}

// TestLimits_FallbackIsSeenByOperators: what a call moved away from, and why.
func TestLimits_FallbackIsSeenByOperators(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.models(t, l.priced("dear", func(m *ktmsv1.ModelSpec) { m.PriceOutPerMtok = 1000 }), l.priced("cheap", nil))
		key := l.key(t, "app", nil)
		l.caps(t, "key", "app", "day", 10*callNano)
		if got := l.openai(t.Context(), t, key, ask{maxTokens: answerTokens}); !got.ok() || got.model != "cheap" || got.cost != callNano {
			t.Errorf("%+v", got)
		}
		if got := l.settles(t, "key", "app", "day"); got != callNano {
			t.Errorf("%d are booked, want what the cheap model cost", got)
		}
		if got := metric(t, l.Instance, "ktms_fallbacks_total", `"throttled"`); got != 1 {
			t.Errorf("%v fallbacks are counted", got)
		}
		if got := metric(t, l.Instance, "ktms_throttled_total", `"spend_key_daily"`); got != 1 {
			t.Errorf("%v refusals are counted", got)
		}
	})
}

// TestLimits_APausedModelAndARate: the wait is that of the pause where it ends first.
func TestLimits_APausedModelAndARate(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.script.on("paused", fails(429, `{"error":{"message":"slow down"}}`, "Retry-After", "20"))
		l.models(t, l.priced("paused", nil), l.priced("rated", func(m *ktmsv1.ModelSpec) { m.Rpm = 1 }))
		key := l.key(t, "app", nil)
		l.once(t, "app", key, ask{})
		for through, call := range l.doors() {
			got := call(t.Context(), t, key, ask{})
			if got.reason != "vendors_unavailable" || got.wait <= 0 || got.wait > 20*time.Second {
				t.Errorf("%s: %+v", through, got)
			}
		}
	})
}

// TestLimits_TheKeysRatesEndTheWalk: no other model is worth a try, and none is asked.
func TestLimits_TheKeysRatesEndTheWalk(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.models(t, l.priced("first", func(m *ktmsv1.ModelSpec) { m.Rpm = 1 }), l.priced("second", nil))
		for name, one := range map[string]struct {
			policy *ktmsv1.APIKeyPolicy
			reason string
			wait   time.Duration
		}{
			"calls":  {&ktmsv1.APIKeyPolicy{RpmLimit: 1}, "throttled:key_rpm", time.Minute},
			"tokens": {&ktmsv1.APIKeyPolicy{TpmLimit: 60}, "throttled:key_tpm", 12 * time.Second}, // 66 are used, and 6 more are asked for
		} {
			key := l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = one.policy })
			l.once(t, name, key, ask{maxTokens: answerTokens})
			if one.policy.GetTpmLimit() > 0 {
				storetest.Eventually(t, patience, "the tokens are booked", func() bool { return l.used(t, 60, "key_tpm", name) == 60 })
			}
			asked := len(l.script.bodies("first")) + len(l.script.bodies("second"))
			for through, call := range l.doors() {
				got := call(t.Context(), t, key, ask{maxTokens: answerTokens})
				if got.reason != one.reason || got.wait != one.wait || strings.Contains(got.message, "no model of the chain") {
					t.Errorf("%s, %s: %+v, want %s and %v", name, through, got, one.reason, one.wait)
				}
			}
			if n := len(l.script.bodies("first")) + len(l.script.bodies("second")); n != asked {
				t.Errorf("%s: %d vendor calls were made for calls that were refused", name, n-asked)
			}
		}
	})
}
