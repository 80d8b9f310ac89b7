// Package dispatch walks a plan: it tries the candidates in order until one answers, for every ability alike.
//
// An attempt is one vendor call. After the first content went to the caller the walk never moves on; before that, what
// an error means is written in one table (package status).
package dispatch

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

const (
	// maxRetryWait is the longest wait that is honoured in place; a longer one means the next candidate.
	maxRetryWait = time.Second
	// minBackoff and maxBackoff bound the wait before a retry when the vendor named none: long enough for a load
	// balancer to pick another backend, short enough to stay unnoticed.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 150 * time.Millisecond
	// maxMachines is how many machines of the local pool one call tries for a model: more failures in a row are no accident
	// of the machines.
	maxMachines = 8
)

// Options is what a Dispatcher needs.
type Options struct {
	Health  *Health
	Metrics *Metrics
	Log     *slog.Logger
	// Timeout bounds an attempt that answers in one piece, and the silence between the chunks of a stream; 0 waits for
	// ever.
	Timeout time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Dispatcher walks plans. It is safe for concurrent use.
type Dispatcher struct{ options Options }

// New returns a Dispatcher.
func New(options Options) *Dispatcher {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Dispatcher{options}
}

// Outcome is what a walk leaves for the log.
type Outcome struct {
	Attempts int
	// Model and Vendor are those of the last attempt.
	Model, Vendor string
	// Usage is what all attempts consumed together, nil if it is not known.
	Usage *ktmsv1.TokensUsage
	// FirstContent is the time from the start of the last attempt to its first content; 0 without one.
	FirstContent time.Duration
	// MaybeBilled: a vendor was asked and nobody knows whether it answered; it may bill what is not in Usage.
	MaybeBilled bool
}

// Walk calls try for one candidate after another until it returns nil. Each call gets a context of its own, which ends
// when the caller's does or when the vendor goes silent. Each attempt is admitted by the account before, and settled with
// what it used after, however it ends. The error is a *status.Error.
func (d *Dispatcher) Walk(ctx context.Context, plan *routing.Plan, account *admit.Account, try func(context.Context, *Attempt) error) (Outcome, error) {
	w := walk{d: d, plan: plan, account: account, effort: effortLabel(plan.Effort)}
	for i := range plan.Candidates {
		candidate := &plan.Candidates[i]
		if candidate.Drop != routing.Kept {
			w.skip(candidate)
			continue
		}
		if done, err := w.candidate(ctx, candidate, try); done {
			return w.outcome, err
		}
	}
	return w.outcome, w.exhausted()
}

// walk is the state of one Walk.
type walk struct {
	d        *Dispatcher
	plan     *routing.Plan
	account  *admit.Account
	effort   string
	outcome  Outcome
	failures []failure
	// left is the candidate that the walk moved away from.
	left       *routing.Candidate
	leftReason string
	// tried are the machines of the local pool that have failed the call.
	tried []string
}

// failure is why one candidate did not answer.
type failure struct {
	candidate *routing.Candidate
	reason    status.Reason
	text      string
	param     string
	// wait is set when the candidate is merely paused, or throttled.
	wait time.Duration
	// refused is the limit that kept the attempt back, if it was one.
	refused *admit.Refusal
}

// skip notes a candidate that the plan dropped for a reason that may pass; the others are not worth telling.
func (w *walk) skip(c *routing.Candidate) {
	switch c.Drop {
	case routing.DropCircuitOpen:
		w.d.options.Metrics.rejections.WithLabelValues(c.Spec.GetVendor(), c.Spec.GetId()).Inc()
		w.fail(c, status.VendorsUnavailable, c.Detail, 0)
		w.leave(c, "circuit_open")
	case routing.DropVendorPaused:
		w.fail(c, status.VendorsUnavailable, c.Detail, c.Wait)
		w.leave(c, "cooldown")
	case routing.DropNoNode:
		w.fail(c, status.VendorsUnavailable, c.Detail, 0)
		w.leave(c, "no_node")
	}
}

func (w *walk) fail(c *routing.Candidate, reason status.Reason, text string, wait time.Duration) {
	w.failures = append(w.failures, failure{candidate: c, reason: reason, text: text, wait: wait})
}

func (w *walk) leave(c *routing.Candidate, reason string) {
	if w.left == nil {
		w.left, w.leftReason = c, reason
	}
}

// candidate tries one candidate, twice at most, or, of the local pool, one machine after another. done ends the walk.
func (w *walk) candidate(ctx context.Context, c *routing.Candidate, try func(context.Context, *Attempt) error) (done bool, err error) {
	o := &w.d.options
	vendor, model := c.Spec.GetVendor(), c.Spec.GetId()
	if w.left != nil {
		o.Metrics.fallbacks.WithLabelValues(w.left.Spec.GetId(), model, w.leftReason).Inc()
		w.left = nil
	}
	w.tried = nil
	var machine, wrong *vendors.Error // what the last machine failed with, and what the first one that called the request wrong
	for retried := false; ; {
		turn, leave := w.begin(c)
		if !leave {
			// Another call took the one probe, or the first try of this one opened the circuit.
			o.Metrics.rejections.WithLabelValues(vendor, model).Inc()
			w.fail(c, status.VendorsUnavailable, "the circuit is open after repeated failures", 0)
			w.leave(c, "circuit_open")
			return false, nil
		}
		ticket, refused := w.account.Admit(ctx, c.Spec, c.Target)
		if refused != nil {
			o.Health.Unjudged(vendor, model, turn)
			return w.refused(c, refused)
		}
		if ctx.Err() != nil {
			ticket.Void()
			o.Health.Unjudged(vendor, model, turn)
			return true, gone(ctx)
		}
		attempt, failed := w.attempt(ctx, c, turn, ticket, try)
		w.judge(c, turn, failed)
		if failed == nil {
			return true, nil
		}
		w.log(ctx, c, attempt, failed)
		verdict := status.Judge(failed.Kind)
		if failed.Kind == vendors.Busy && wrong != nil {
			return true, refusal(ctx, wrong)
		}
		// Machines have engines and settings of their own, so that one may be unable to do what another one can. Two that call
		// the request wrong are believed.
		doubtful := failed.Kind == vendors.Invalid && failed.Node != "" && wrong == nil && len(w.tried) < maxMachines
		if verdict.Step == status.Stop && !doubtful || attempt.committed.Load() {
			return true, refusal(ctx, failed)
		}
		if doubtful {
			wrong = failed
		}
		if failed.Kind == vendors.Busy && failed.RetryAfter == 0 && machine != nil {
			// No other is left, which tells less than why this one did not serve.
			w.move(c, machine, status.Judge(machine.Kind), false)
			return false, nil
		}
		if failed.Node != "" && len(w.tried) < maxMachines {
			machine = failed
			w.tried = append(slices.Clip(w.tried), failed.Node) // the attempt keeps the former list
			continue
		}

		wait := failed.RetryAfter
		paused := verdict.Pauses && wait > maxRetryWait && vendor != vendors.Local &&
			pausable(failed) && o.Health.Pause(vendor, c.Credential, model, wait)
		if paused {
			o.Metrics.cooldowns.WithLabelValues(vendor, model).Inc()
		}
		if wait > maxRetryWait && !o.Health.Pauses() {
			wait = 0 // with pauses off, a long wait is treated as none asked for
		}
		if verdict.Step == status.RetryThenNext && !retried && wait <= maxRetryWait {
			if !sleep(ctx, backoff(wait)) {
				return true, gone(ctx)
			}
			retried = true
			continue
		}
		w.move(c, failed, verdict, paused)
		return false, nil
	}
}

// begin asks the circuit of a model for leave. The machines of the local pool have circuits of their own.
func (w *walk) begin(c *routing.Candidate) (Turn, bool) {
	if c.Spec.GetVendor() == vendors.Local {
		return 0, true
	}
	return w.d.options.Health.Begin(c.Spec.GetVendor(), c.Spec.GetId())
}

// judge tells the circuit of a model how an attempt ended.
func (w *walk) judge(c *routing.Candidate, turn Turn, failed *vendors.Error) {
	health, vendor, model := w.d.options.Health, c.Spec.GetVendor(), c.Spec.GetId()
	switch {
	case vendor == vendors.Local:
	case failed == nil, failed.Kind == vendors.Unfit: // the vendor is well, the model was not
		health.Succeeded(vendor, model, turn)
	case status.Judge(failed.Kind).Breaks:
		health.Failed(vendor, model, turn)
	default:
		health.Unjudged(vendor, model, turn)
	}
}

func (w *walk) log(ctx context.Context, c *routing.Candidate, attempt *Attempt, failed *vendors.Error) {
	attrs := []slog.Attr{
		slog.String("request_id", caller.RequestID(ctx)), slog.String("vendor", c.Spec.GetVendor()),
		slog.String("model", c.Spec.GetId()), slog.Int("attempt", attempt.Number),
		slog.Bool("committed", attempt.committed.Load()), slog.String("kind", failed.Kind.String()),
		// Not what the vendor said: vendors quote the prompt.
		slog.Int("status", failed.Status), slog.Any("cause", failed.Err), slog.Bool("maybe_billed", maybeBilled(failed, attempt)),
	}
	if failed.Node != "" {
		attrs = append(attrs, slog.String("node", failed.Node))
	}
	w.d.options.Log.LogAttrs(ctx, levelOf(failed), "attempt failed", attrs...)
}

// move notes why the walk leaves a candidate.
func (w *walk) move(c *routing.Candidate, failed *vendors.Error, verdict status.Verdict, paused bool) {
	switch {
	case paused:
		w.fail(c, verdict.Reason, failed.Public(), w.d.options.Health.Paused(c.Spec.GetVendor(), c.Credential, c.Spec.GetId()))
		w.leave(c, "cooldown")
	case failed.Kind == vendors.Busy:
		w.fail(c, verdict.Reason, failed.Message, failed.RetryAfter)
		w.leave(c, failed.Kind.String())
	default:
		w.fail(c, verdict.Reason, failed.Public(), 0)
		w.leave(c, failed.Kind.String())
	}
	w.failures[len(w.failures)-1].param = failed.Param
}

// refused notes a candidate that a limit keeps back. A limit on the whole call ends the walk.
func (w *walk) refused(c *routing.Candidate, refusal *admit.Refusal) (done bool, _ error) {
	if refusal.Final {
		return true, refusal.Status()
	}
	w.fail(c, refusal.Reason, refusal.Text, refusal.Wait)
	w.failures[len(w.failures)-1].refused = refusal
	w.leave(c, "throttled")
	return false, nil
}

// pausable keeps pauses to the two answers with which vendors ask for one.
func pausable(err *vendors.Error) bool { return err.Status == 429 || err.Status == 503 }

func backoff(asked time.Duration) time.Duration {
	if asked > 0 {
		return asked
	}
	return minBackoff + rand.N(maxBackoff-minBackoff)
}

// sleep waits; false means that the caller left.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
