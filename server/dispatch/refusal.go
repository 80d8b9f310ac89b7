package dispatch

import (
	"context"
	"errors"
	"strings"

	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// refusal is what the caller reads when the walk ends at one attempt.
func refusal(ctx context.Context, failed *vendors.Error) *status.Error {
	if failed.Kind == vendors.Canceled {
		return gone(ctx)
	}
	e := status.Wrap(failed, status.Judge(failed.Kind).Reason, "%s", failed.Public())
	if failed.Kind == vendors.Invalid && failed.Message != "" {
		e.Text = failed.Message
	}
	e.Param = failed.Param
	return e
}

// gone is the end of a call whose caller left or ran out of time.
func gone(ctx context.Context) *status.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return status.Wrap(ctx.Err(), status.DeadlineExceeded, "the call's deadline passed before a model answered")
	}
	return status.Wrap(context.Cause(ctx), status.Canceled, "the caller went away")
}

// exhausted is what the caller reads when no candidate answered. A failure that may pass makes the whole refusal
// retryable; a wait is promised only when every candidate is merely paused or throttled, and then the shortest.
func (w *walk) exhausted() *status.Error {
	texts := make([]string, 0, len(w.failures))
	allWait := true
	var soonest *failure
	for i := range w.failures {
		f := &w.failures[i]
		texts = append(texts, f.candidate.Spec.GetId()+": "+f.text)
		allWait = allWait && f.wait > 0
		if f.wait > 0 && (soonest == nil || f.wait < soonest.wait) {
			soonest = f
		}
	}
	e := status.New(w.reason(), "no model of the chain could answer: %s", strings.Join(texts, "; "))
	if e.Reason == status.BadRequest { // nobody can carry what was asked for
		e.Param = w.failures[0].param
	}
	if throttled := w.throttled(); throttled != nil && e.Reason == throttled.reason {
		e.Allowances = throttled.refused.Allowances
		e.RetryAfter = throttled.wait
		if len(w.failures) == 1 {
			e.Text = throttled.text
		}
	}
	if allWait && soonest != nil {
		e.RetryAfter = soonest.wait
	}
	return e
}

// reason is the one of all failures that tells the caller most about what to do: what may pass by itself before what a
// limit holds back for some time, and both before what is for good.
func (w *walk) reason() status.Reason {
	callers := len(w.failures) > 0 // all failures are the request's
	var last status.Reason
	mixed := false
	for _, f := range w.failures {
		if f.reason == status.VendorsUnavailable {
			return f.reason
		}
		callers = callers && f.reason != status.VendorError
		mixed = mixed || last != "" && f.reason != last
		last = f.reason
	}
	switch throttled := w.throttled(); {
	case throttled != nil:
		return throttled.reason
	case last == "":
		return status.VendorError
	case !mixed:
		return last
	case callers: // of several kinds: no other model and no other try helps
		return status.BadRequest
	default:
		return status.VendorError
	}
}

// throttled is the limit that lets go first; counters that do not answer may do so at any moment.
func (w *walk) throttled() *failure {
	var first *failure
	for i := range w.failures {
		f := &w.failures[i]
		if f.refused != nil && (first == nil || f.wait < first.wait) {
			first = f
		}
	}
	return first
}
