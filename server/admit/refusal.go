package admit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/status"
)

// Refusal says which limit keeps an attempt back.
type Refusal struct {
	Reason status.Reason
	// Text is for the caller: the limit, what of it is used and when it is there again. It holds no names of keys.
	Text string
	// Wait is when the same attempt may be admitted; 0 promises nothing.
	Wait time.Duration
	// Final: the limit is on the whole call, so that no other model is worth a try.
	Final      bool
	Allowances []status.Allowance
}

func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Text }

// Status is the refusal as an answer to the caller.
func (r *Refusal) Status() *status.Error {
	return &status.Error{Reason: r.Reason, Text: r.Text, RetryAfter: r.Wait, Allowances: r.Allowances}
}

// refuse picks the limit that tells the caller most: one on the whole call before the others, and of these the one that
// takes longest, since nothing helps before it.
func (a *Account) refuse(refused *pool.Refusal) *Refusal {
	chosen := &refused.Refused[0]
	for i := range refused.Refused[1:] {
		if r := &refused.Refused[i+1]; weight(r) > weight(chosen) {
			chosen = r
		}
	}
	reason := status.Reason(chosen.Reason)
	ofCall := reason == status.ThrottledKeyRPM || reason == status.ThrottledKeyTPM
	out := &Refusal{Reason: reason, Wait: chosen.RetryAfter, Final: ofCall, Text: a.explain(chosen),
		Allowances: []status.Allowance{}}
	if chosen.Never && reason == status.ThrottledKeyTPM {
		out.Reason, out.Wait = status.RequestTooLarge, 0
		return out
	}
	if unit := unitOf(chosen.Charge); unit != "" {
		out.Allowances = append(out.Allowances, allowance(unit, chosen.Charge, chosen.Standing))
	}
	a.count(reason)
	return out
}

// weight orders refusals by how much they say.
func weight(r *pool.Refused) time.Duration {
	const ofCall, never = 1 << 61, 1 << 60
	w := min(r.RetryAfter, never-1)
	if r.Never {
		w += never
	}
	if reason := status.Reason(r.Reason); reason == status.ThrottledKeyRPM || reason == status.ThrottledKeyTPM {
		w += ofCall
	}
	return w
}

// scopes say in the caller's words what a limit is on.
var scopes = map[status.Reason]string{
	status.ThrottledKeyRPM: "the API key", status.ThrottledKeyTPM: "the API key",
	status.BudgetKey: "the API key", status.BudgetUser: "the user",
	status.SpendKeyDaily: "the API key", status.SpendKeyMonthly: "the API key",
	status.SpendUserDaily: "the user", status.SpendUserMonthly: "the user", status.SpendTeamMonthly: "the team",
}

func (a *Account) explain(r *pool.Refused) string {
	switch reason := status.Reason(r.Reason); reason {
	case status.ThrottledRPM:
		whose := "the API key"
		if strings.HasPrefix(r.Key, pool.Key("rpm", "user")+":") {
			whose = "the user"
		}
		return fmt.Sprintf("%s may make %d requests a minute to this model; the next one fits in %s", whose, r.Rate.Limit, shown(r.RetryAfter))
	case status.ThrottledKeyRPM:
		return fmt.Sprintf("the API key may make %d requests a minute; the next one fits in %s", r.Rate.Limit, shown(r.RetryAfter))
	case status.ThrottledKeyTPM:
		if r.Never {
			return fmt.Sprintf("this request has about %d tokens, more than the %d that the API key may use in a minute; "+
				"shorten it, or raise tpm_limit", r.Amount, r.Rate.Limit)
		}
		return fmt.Sprintf("the API key may use %d tokens a minute, and this request has about %d; it fits in %s", r.Rate.Limit, r.Amount, shown(r.RetryAfter))
	case status.BudgetKey, status.BudgetUser:
		return fmt.Sprintf("%s has used %d of its %d tokens of today with this model%s, and this call may need %d; it resets at %s",
			scopes[reason], r.Settled, r.Window.Limit, reserved(r, strconv.FormatInt), r.Amount, a.resets(r))
	default:
		period := "today"
		if r.Window.Span == pool.Month {
			period = "this month"
		}
		text := fmt.Sprintf("%s has spent %s of its %s USD of %s%s, and this call may cost up to %s; it resets at %s",
			scopes[reason], USD(r.Settled), USD(r.Window.Limit), period, reserved(r, func(n int64, _ int) string { return USD(n) }), USD(r.Amount), a.resets(r))
		if r.Never {
			text += "; the call alone is beyond the limit: lower its max_tokens"
		}
		return text
	}
}

// reserved says what calls in flight hold, if they do.
func reserved(r *pool.Refused, format func(int64, int) string) string {
	if r.Reserved == 0 {
		return ""
	}
	return ", with " + format(r.Reserved, 10) + " more held for calls in flight"
}

// resets is when a window ends.
func (a *Account) resets(r *pool.Refused) string {
	_, end := r.Window.Span.At(r.Start)
	return end.Format(time.RFC3339)
}

// shown rounds a wait up to what a person wants to read.
func shown(wait time.Duration) string {
	const tenth = 100 * time.Millisecond
	return ((wait + tenth - 1) / tenth * tenth).String()
}

// USD writes nano-USD as dollars, with as many decimals as it needs and at least two.
func USD(nano int64) string {
	text := fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9)
	for strings.HasSuffix(text, "0") && len(text)-strings.IndexByte(text, '.') > 3 {
		text = text[:len(text)-1]
	}
	return text
}

// allow notes, of the rates that an attempt was admitted under, the tightest of each unit.
func (a *Account) allow(bookings []pool.Booking) {
	for _, b := range bookings {
		unit := unitOf(b.Charge)
		if unit == "" {
			continue
		}
		next := allowance(unit, b.Charge, b.Standing)
		found := false
		for i := range a.allowances {
			if have := &a.allowances[i]; have.Unit == unit {
				found = true
				if next.Remaining < have.Remaining {
					*have = next
				}
			}
		}
		if !found {
			a.allowances = append(a.allowances, next)
		}
	}
}

// unitOf is the unit that the headers know a charge by; money is in none.
func unitOf(c pool.Charge) string {
	switch status.Reason(c.Reason) {
	case status.ThrottledRPM, status.ThrottledKeyRPM:
		return status.UnitRequests
	case status.ThrottledKeyTPM, status.BudgetKey, status.BudgetUser:
		return status.UnitTokens
	}
	return ""
}

func allowance(unit string, c pool.Charge, s pool.Standing) status.Allowance {
	limit := c.Window.Limit
	if c.Rate != (pool.Rate{}) {
		limit = c.Rate.Burst + 1 // what is left is counted from there
	}
	return status.Allowance{Unit: unit, Limit: limit, Remaining: s.Remaining, Reset: s.Reset}
}
