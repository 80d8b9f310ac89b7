package dispatch

import (
	"context"
	"errors"
	"strings"
	"time"

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
// retryable; a wait is promised only when every candidate is merely paused.
func (w *walk) exhausted() *status.Error {
	reason := status.VendorError
	callers := len(w.failures) > 0 // all failures are the request's
	var wait time.Duration
	allPaused := true
	texts := make([]string, 0, len(w.failures))
	for i, f := range w.failures {
		switch {
		case f.reason == status.VendorsUnavailable:
			reason = status.VendorsUnavailable
		case i == 0 || reason == f.reason:
			reason = f.reason
		case reason != status.VendorsUnavailable:
			reason = status.VendorError
		}
		callers = callers && f.reason != status.VendorError && f.reason != status.VendorsUnavailable
		if f.wait <= 0 {
			allPaused = false
		} else if wait == 0 || f.wait < wait {
			wait = f.wait
		}
		texts = append(texts, f.candidate.Spec.GetId()+": "+f.text)
	}
	if callers && reason == status.VendorError { // of several kinds: no other model and no other try helps
		reason = status.BadRequest
	}
	e := status.New(reason, "no model of the chain could answer: %s", strings.Join(texts, "; "))
	if reason == status.BadRequest { // nobody can carry what was asked for
		e.Param = w.failures[0].param
	}
	if allPaused {
		e.RetryAfter = wait
	}
	return e
}
