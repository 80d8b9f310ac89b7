package status

import (
	"net/http/httptest"
	"testing"
	"time"
)

func TestResetText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", time.Microsecond: "1ms", 120 * time.Millisecond: "120ms", time.Second: "1s", 8635 * time.Millisecond: "8.64s",
		6 * time.Minute: "6m0s", time.Hour + time.Nanosecond: "1h0m0.01s",
	} {
		if got := resetText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// An SDK is told not to try again exactly when it would be for nothing.
func TestWriteOpenAI_WhetherToTryAgain(t *testing.T) {
	for _, c := range []struct {
		reason            Reason
		wait              time.Duration
		header, after, is string
	}{
		{VendorError, 0, "false", "", "vendor_error"},
		{VendorsUnavailable, 0, "", "", "vendors_unavailable"},
		{ThrottledRPM, 2500 * time.Millisecond, "", "3", "throttled:rpm"},
		{BudgetUser, 3 * time.Hour, "false", "10800", "throttled:budget_user"},
		{SpendKeyDaily, 3 * time.Hour, "false", "10800", "insufficient_quota"},
		{SpendKeyDaily, 2 * time.Second, "", "2", "insufficient_quota"}, // only calls in flight are in the way
		{SpendUnavailable, 0, "", "", "throttled:spend_unavailable"},
	} {
		w := httptest.NewRecorder()
		e := New(c.reason, "no")
		e.RetryAfter = c.wait
		WriteOpenAI(w, e)
		if got := w.Header().Get("X-Should-Retry"); got != c.header {
			t.Errorf("%s after %v: x-should-retry %q, want %q", c.reason, c.wait, got, c.header)
		}
		if got := w.Header().Get("Retry-After"); got != c.after {
			t.Errorf("%s after %v: retry-after %q, want %q", c.reason, c.wait, got, c.after)
		}
		if _, body := OpenAI(e); body.Code != c.is {
			t.Errorf("%s: code %q, want %q", c.reason, body.Code, c.is)
		}
	}
}

func TestHeaders(t *testing.T) {
	got := map[string]string{}
	for name, value := range Headers([]Allowance{{Unit: UnitTokens, Limit: 6000, Remaining: 5900, Reset: time.Second}}) {
		got[name] = value
	}
	if len(got) != 3 || got["X-Ratelimit-Limit-tokens"] != "6000" || got["X-Ratelimit-Remaining-tokens"] != "5900" || got["X-Ratelimit-Reset-tokens"] != "1s" {
		t.Errorf("%v", got)
	}
}
