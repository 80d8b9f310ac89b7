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
	// Wait is when the limit lets go; 0 promises nothing. What is beyond a limit all by itself does not fit then, either: the
	// text says so.
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

// heldWait is the wait for calls in flight to end, when nothing but what they reserve is in the way: nobody knows how long
// they take, and a client that comes back too early is told so again.
const heldWait = 2 * time.Second

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
	out := &Refusal{Reason: reason, Wait: waitFor(chosen), Final: ofCall(chosen), Text: explain(chosen)}
	if chosen.Never && reason == status.ThrottledKeyTPM {
		out.Reason, out.Wait = status.RequestTooLarge, 0
		return out
	}
	if unit := unitOf(chosen.Charge); unit != "" {
		out.Allowances = []status.Allowance{allowance(unit, chosen.Charge, chosen.Standing)}
	}
	a.count(reason)
	return out
}

// waitFor is when a charge may fit: when a rate has drained, when a window ends, or, where it would fit but for calls in
// flight, soon.
func waitFor(r *pool.Refused) time.Duration {
	if onlyHeld(r) {
		return min(heldWait, r.RetryAfter)
	}
	return r.RetryAfter
}

// onlyHeld reports whether nothing but reservations is in the way.
func onlyHeld(r *pool.Refused) bool {
	return !r.IsRate() && r.Reserved > 0 && r.Window.Fits(r.Settled, r.Amount)
}

// ofCall reports whether a limit is on the whole call.
func ofCall(r *pool.Refused) bool {
	reason := status.Reason(r.Reason)
	return reason == status.ThrottledKeyRPM || reason == status.ThrottledKeyTPM
}

// weight orders refusals by how much they say.
func weight(r *pool.Refused) time.Duration {
	const call, never = 1 << 61, 1 << 60
	w := min(waitFor(r), never-1)
	if r.Never {
		w += never
	}
	if ofCall(r) {
		w += call
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

func explain(r *pool.Refused) string {
	switch reason := status.Reason(r.Reason); reason {
	case status.ThrottledRPM:
		whose := "the API key"
		if strings.HasPrefix(r.Key, pool.Key(rateOf, SubjectUser)+":") {
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
			scopes[reason], r.Settled, r.Window.Limit, reserved(r, strconv.FormatInt), r.Amount, resets(r))
	default:
		period := "today"
		if r.Window.Span == pool.Month {
			period = "this month"
		}
		text := fmt.Sprintf("%s has spent %s of its %s USD of %s%s, and this call may cost up to %s; it resets at %s",
			scopes[reason], USD(r.Settled), USD(r.Window.Limit), period, reserved(r, func(n int64, _ int) string { return USD(n) }), USD(r.Amount), resets(r))
		if r.Never {
			text += "; the call alone is beyond the limit: shorten it, or lower its max_tokens"
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
func resets(r *pool.Refused) string {
	_, end := r.Window.Span.At(r.Start)
	return end.Format(time.RFC3339)
}

// shown rounds a wait up to what a person wants to read.
func shown(wait time.Duration) string {
	const tenth = 100 * time.Millisecond
	return (wait + tenth - 1).Truncate(tenth).String()
}

// USD writes nano-USD as dollars, with as many decimals as it needs and at least two.
func USD(nano int64) string {
	text := fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9)
	for strings.HasSuffix(text, "0") && len(text)-strings.IndexByte(text, '.') > 3 {
		text = text[:len(text)-1]
	}
	return text
}
