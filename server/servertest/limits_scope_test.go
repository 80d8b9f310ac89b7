package servertest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// served makes calls until one is refused, and returns how many were answered.
func (l *limited) served(t *testing.T, key string, a ask, reason string) (n int) {
	t.Helper()
	for ; n < 200; n++ {
		got := l.openai(t.Context(), t, key, a)
		if got.ok() {
			continue
		}
		if got.reason != reason {
			t.Errorf("after %d calls: %+v, want %s", n, got, reason)
		}
		break
	}
	return n
}

// TestLimits_TheClosestUserRateCounts: the user and the model, the user, the model, everybody.
func TestLimits_TheClosestUserRateCounts(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.models(t, l.priced("m", nil), l.priced("n", nil))
		key, other := l.key(t, "app", nil), l.key(t, "other", nil)
		for _, rate := range []*ktmsv1.SetUserRateLimitRequest{
			perMinute("*", "*", 1, 0), perMinute("*", "m", 2, 0), perMinute("u", "*", 3, 0), perMinute("u", "m", 4, 0), perMinute("free", "*", 0, 0),
		} {
			l.must(t)(l.Admin.SetUserRateLimit(t.Context(), rate))
		}
		for _, one := range []struct {
			user, model string
			want        int
		}{
			{"u", "m", 4}, {"u", "n", 3}, {"v", "m", 2}, {"v", "n", 1},
			{"", "m", 2}, {"", "n", 1}, // the service itself
			{"free", "m", 200}, // is lifted
		} {
			if got := l.served(t, key, ask{user: one.user, model: one.model}, "throttled:rpm"); got != one.want {
				t.Errorf("user %q, model %s: %d calls at once, want %d", one.user, one.model, got, one.want)
			}
		}
		// A user is the same with every key.
		if got := l.served(t, other, ask{user: "v", model: "m"}, "throttled:rpm"); got != 0 {
			t.Errorf("another key gave the user %d calls more", got)
		}
	})
}

// TestLimits_WhoSharesWhat: a model's rate is each key's own, a key's rate is over all models, a budget of a team is over
// all of its keys.
func TestLimits_WhoSharesWhat(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.models(t, l.priced("rated", func(m *ktmsv1.ModelSpec) { m.Rpm = 2 }), l.priced("m", nil), l.priced("n", nil))
		for _, name := range []string{"first", "second"} {
			if got := l.served(t, l.key(t, name, nil), ask{model: "rated"}, "throttled:rpm"); got != 2 {
				t.Errorf("the %s key: %d calls at once, want 2", name, got)
			}
		}

		key := l.key(t, "three", func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = &ktmsv1.APIKeyPolicy{RpmLimit: 3} })
		l.once(t, "three", key, ask{model: "m"})
		l.once(t, "three", key, ask{model: "n"})
		l.once(t, "three", key, ask{model: "rated"})
		for _, model := range []string{"m", "n", "rated", ""} {
			if got := l.openai(t.Context(), t, key, ask{model: model}); got.reason != "throttled:key_rpm" {
				t.Errorf("the fourth call, to %q: %+v", model, got)
			}
		}

		org, team := l.team(t, "search", 0.001)
		member := func(r *ktmsv1.MintAPIKeyRequest) { r.OrgId, r.TeamId = org, team }
		a, b := l.key(t, "a", member), l.key(t, "b", member)
		l.once(t, "a", a, ask{model: "m", maxTokens: answerTokens})
		if got := l.openai(t.Context(), t, b, ask{model: "m", maxTokens: answerTokens}); got.reason != "insufficient_quota" {
			t.Errorf("the other key of the team: %+v", got)
		}
		storetest.Eventually(t, patience, "the team's spend is booked", func() bool {
			r, err := l.Admin.GetTeamSpend(t.Context(), &ktmsv1.GetTeamSpendRequest{Id: team})
			w := r.GetWindow()
			return err == nil && w.GetSpentNanousd() == callNano && w.GetReservedNanousd() == 0 && w.GetRemainingNanousd() == 1_000_000-callNano
		})
	})
}

// TestLimits_ARetryInPlaceIsOneCall for the rates, and each try is paid for.
func TestLimits_ARetryInPlaceIsOneCall(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.models(t, l.priced("m", func(m *ktmsv1.ModelSpec) { m.Rpm = 10 }))
		for _, stream := range []bool{false, true} {
			name := fmt.Sprint("stream-", stream)
			key := l.key(t, name, func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = &ktmsv1.APIKeyPolicy{RpmLimit: 20, TpmLimit: 1000} })
			before := len(l.script.bodies("m"))
			l.script.on("m", func(w http.ResponseWriter, r *http.Request, stream bool) {
				l.script.on("m", nil)
				fails(500, `{"error":{"message":"once"}}`)(w, r, stream)
			})
			l.once(t, name, key, ask{model: "m", stream: stream})
			if tries := len(l.script.bodies("m")) - before; tries != 2 {
				t.Fatalf("%d tries, the test shows nothing", tries)
			}
			storetest.Eventually(t, patience, "the tokens are booked", func() bool { return l.used(t, 1000, "key_tpm", name) == callTokens })
			if ofModel, ofKey := l.used(t, 10, "rpm", "key", name, "m"), l.used(t, 20, "key_rpm", name); ofModel != 1 || ofKey != 1 {
				t.Errorf("stream %v: counted %d on the model's rate and %d on the key's, want 1 each", stream, ofModel, ofKey)
			}
		}
	})
}

// TestLimits_WhatIsReserved while a call is under way: its worst case, with all that can be said of it beforehand.
func TestLimits_WhatIsReserved(t *testing.T) {
	t.Parallel()
	const bound = 50
	onBothMeters(t, func(t *testing.T, c counters) {
		for i, one := range []struct {
			name   string
			a      ask
			change func(*ktmsv1.ModelSpec)
			output int64
		}{
			{"one answer", ask{maxTokens: bound}, nil, bound},
			{"three answers", ask{maxTokens: bound, n: 3}, nil, 3 * bound},
			{"three answers in a stream", ask{maxTokens: bound, n: 3, stream: true}, nil, 3 * bound},
			{"no bound", ask{}, nil, 4096},
			{"three answers without a bound", ask{n: 3}, nil, 3 * 4096},
			{"more than the model has", ask{maxTokens: bound, n: 2}, func(m *ktmsv1.ModelSpec) { m.MaxOutputTokens = bound - 10 }, 2 * (bound - 10)},
			{"no bound but the model's", ask{n: 2}, func(m *ktmsv1.ModelSpec) { m.MaxOutputTokens = bound }, 2 * bound},
		} {
			t.Run(one.name, func(t *testing.T) {
				l := limitedBy(t, c, nil)
				m := l.priced("m", func(m *ktmsv1.ModelSpec) { m.DailyTokensPerKey = 1_000_000 })
				if one.change != nil {
					one.change(m)
				}
				l.models(t, m)
				name := fmt.Sprint("app-", i)
				key := l.key(t, name, nil)
				l.caps(t, "key", name, "day", 1_000_000_000)
				one.a.model = "m"
				l.whileUnderWay(t, key, one.a, func() {
					settled, reserved := l.spend(t, "key", name, "day")
					if want := promptTokens*promptNano + one.output*answerNano; settled != 0 || reserved != want {
						t.Errorf("reserved %d and settled %d, want %d and nothing", reserved, settled, want)
					}
					bounded := one.output
					if one.a.maxTokens == 0 {
						bounded = 0 // nobody is refused for what an answer might be
					}
					if s := l.tokens(t, "key", name, "m"); s.Reserved != promptTokens+bounded || s.Settled != 0 {
						t.Errorf("the budget stands at %+v, want %d reserved", s, promptTokens+bounded)
					}
				})
				if got := l.settles(t, "key", name, "day"); got != callNano {
					t.Errorf("%d are booked, want %d", got, callNano)
				}
				l.booked(t, "key", name, "m", callTokens)
			})
		}
	})
}

// whileUnderWay looks while the vendor of model m has a call and does not answer.
func (l *limited) whileUnderWay(t *testing.T, key string, a ask, look func()) {
	t.Helper()
	arrived, release := make(chan struct{}), make(chan struct{})
	l.script.on("m", func(w http.ResponseWriter, r *http.Request, stream bool) {
		close(arrived)
		<-release
		answer(w, r, stream)
	})
	ended := make(chan seen, 1)
	go func() { ended <- l.openai(t.Context(), t, key, a) }()
	<-arrived
	look()
	close(release)
	if got := <-ended; !got.ok() {
		t.Errorf("%+v", got)
	}
}

// TestLimits_ClaudeReservesWhatIsSent: its dialect always bounds the answer, and its cache may be written to.
func TestLimits_ClaudeReservesWhatIsSent(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		for _, catalogue := range []int64{0, 500} {
			l := limitedBy(t, c, nil)
			claude := l.priced("claude-haiku-4-5", func(m *ktmsv1.ModelSpec) { m.Vendor, m.MaxOutputTokens = vendors.Anthropic, catalogue })
			l.models(t, claude)
			name := fmt.Sprint("app-", catalogue)
			key := l.key(t, name, nil)
			l.must(t)(l.Admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: name, Vendor: vendors.Anthropic, PlainKey: servertest.VendorKey}))
			l.caps(t, "key", name, "day", 1_000_000_000)
			anthropic := vendortest.Anthropic()
			l.script.on(claude.GetId(), func(w http.ResponseWriter, _ *http.Request, _ bool) {
				var sent struct {
					MaxTokens int64 `json:"max_tokens"`
				}
				if err := json.Unmarshal([]byte(l.script.bodies(claude.GetId())[0]), &sent); err != nil || sent.MaxTokens == 0 {
					t.Errorf("the vendor got %v, %v", l.script.bodies(claude.GetId()), err)
				}
				// Writing to the cache costs a quarter more than reading.
				want := promptTokens*promptNano*5/4 + sent.MaxTokens*answerNano
				if settled, reserved := l.spend(t, "key", name, "day"); settled != 0 || reserved != want {
					t.Errorf("the catalogue says %d: reserved %d and settled %d, want %d for %d tokens of answer", catalogue, reserved, settled, want, sent.MaxTokens)
				}
				w.Header().Set("Content-Type", anthropic.UnaryType)
				_, _ = io.WriteString(w, anthropic.Body(vendortest.Answer{ID: "a", Model: "m", Text: []string{"fine"}, FinishReason: "stop",
					Usage: &ktmsv1.TokensUsage{Input: promptTokens, Output: answerTokens}}))
			})
			if got := l.openai(t.Context(), t, key, ask{model: claude.GetId()}); !got.ok() {
				t.Fatalf("%+v", got)
			}
			if got := l.settles(t, "key", name, "day"); got != callNano {
				t.Errorf("%d are booked, want %d", got, callNano)
			}
		}
	})
}

// TestLimits_WhatCallsInFlightHold is there again soon, and not only when the window resets.
func TestLimits_WhatCallsInFlightHold(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		l.models(t, l.priced("m", nil), l.priced("n", nil))
		key := l.key(t, "app", nil)
		l.caps(t, "key", "app", "day", 1_000_000)
		other := ask{model: "n", maxTokens: answerTokens}
		l.whileUnderWay(t, key, ask{model: "m", maxTokens: answerTokens}, func() {
			for through, call := range l.doors() {
				for _, other.stream = range []bool{false, true} {
					got := call(t.Context(), t, key, other)
					if got.reason != "insufficient_quota" || got.wait <= 0 || got.wait > 10*time.Second || got.again != "" ||
						!strings.Contains(got.message, "has spent 0.00 of its 0.001 USD of today, with 0.000612 more held for calls in flight") {
						t.Errorf("%s, stream %v: %+v", through, other.stream, got)
					}
				}
			}
		})
		l.settles(t, "key", "app", "day")
		for through, call := range l.doors() {
			if got := call(t.Context(), t, key, other); got.wait != untilTomorrow {
				t.Errorf("%s, when it is spent: %+v", through, got)
			}
		}
	})
}
