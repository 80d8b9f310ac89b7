// Package dispatch walks a plan: it tries the candidates in order until one answers, for every ability alike.
//
// An attempt is one vendor call. After the first content went to the caller the walk never moves on; before that, what
// an error means is written in one table (package status).
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
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

// Attempt is one vendor call of a walk. It is used by one goroutine.
type Attempt struct {
	Candidate *routing.Candidate
	// Number counts the attempts of the walk from 1.
	Number int

	now       func() time.Time
	started   time.Time
	watchdog  *time.Timer
	timeout   time.Duration
	committed bool
	firstAt   time.Time
	usage     *ktmsv1.TokensUsage
}

// Alive tells the watchdog that the vendor is still sending.
func (a *Attempt) Alive() {
	if a.watchdog != nil {
		a.watchdog.Reset(a.timeout)
	}
}

// Handing tells the watchdog that the vendor is not waited for: what it sent is on its way to the caller, whose pace is
// not its fault. Alive ends it.
func (a *Attempt) Handing() {
	if a.watchdog != nil {
		a.watchdog.Stop()
	}
}

// Commit marks the first content that goes to the caller: from here on there is no fallback.
func (a *Attempt) Commit() {
	if !a.committed {
		a.committed, a.firstAt = true, a.now()
	}
}

// Started is when the attempt began; prices can depend on it.
func (a *Attempt) Started() time.Time { return a.started }

// Usage is what the call consumed so far, nil if nobody said.
func (a *Attempt) Usage() *ktmsv1.TokensUsage { return a.usage }

// Used reports what the call consumed; the last report counts.
func (a *Attempt) Used(usage *ktmsv1.TokensUsage) {
	if usage != nil {
		a.usage = usage
	}
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
}

var errStalled = errors.New("the vendor went silent")

// Walk calls try for one candidate after another until it returns nil. Each call gets a context of its own, which ends
// when the caller's does or when the vendor goes silent. The error is a *status.Error.
func (d *Dispatcher) Walk(ctx context.Context, plan *routing.Plan, try func(context.Context, *Attempt) error) (Outcome, error) {
	w := walk{d: d, plan: plan, effort: effortLabel(plan.Effort)}
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
	effort   string
	outcome  Outcome
	failures []failure
	// left is the candidate that the walk moved away from.
	left       *routing.Candidate
	leftReason string
}

// failure is why one candidate did not answer.
type failure struct {
	candidate *routing.Candidate
	reason    status.Reason
	text      string
	param     string
	// wait is set when the candidate is merely paused.
	wait time.Duration
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

// candidate tries one candidate, twice at most. done ends the walk.
func (w *walk) candidate(ctx context.Context, c *routing.Candidate, try func(context.Context, *Attempt) error) (done bool, err error) {
	o := &w.d.options
	vendor, model := c.Spec.GetVendor(), c.Spec.GetId()
	if w.left != nil {
		o.Metrics.fallbacks.WithLabelValues(w.left.Spec.GetId(), model, w.leftReason).Inc()
		w.left = nil
	}
	for retried := false; ; retried = true {
		turn, leave := o.Health.Begin(vendor, model)
		if !leave {
			// Another call took the one probe, or the first try of this one opened the circuit.
			o.Metrics.rejections.WithLabelValues(vendor, model).Inc()
			w.fail(c, status.VendorsUnavailable, "the circuit is open after repeated failures", 0)
			w.leave(c, "circuit_open")
			return false, nil
		}
		attempt, failed := w.attempt(ctx, c, turn, try)
		if failed == nil {
			o.Health.Succeeded(vendor, model, turn)
			return true, nil
		}
		verdict := status.Judge(failed.Kind)
		switch {
		case verdict.Breaks:
			o.Health.Failed(vendor, model, turn)
		case failed.Kind == vendors.Unfit: // the vendor is well, the model was not
			o.Health.Succeeded(vendor, model, turn)
		default:
			o.Health.Unjudged(vendor, model, turn)
		}
		o.Log.LogAttrs(ctx, levelOf(failed), "attempt failed", slog.String("request_id", caller.RequestID(ctx)),
			slog.String("vendor", vendor), slog.String("model", model), slog.Int("attempt", attempt.Number),
			slog.Bool("committed", attempt.committed), slog.String("kind", failed.Kind.String()),
			// Not what the vendor said: vendors quote the prompt.
			slog.Int("status", failed.Status), slog.Any("cause", failed.Err))
		if verdict.Step == status.Stop || attempt.committed {
			return true, refusal(ctx, failed)
		}

		wait := failed.RetryAfter
		paused := verdict.Pauses && wait > maxRetryWait && c.Spec.GetVendor() != vendors.Local &&
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
			continue
		}
		if paused {
			w.fail(c, verdict.Reason, failed.Public(), o.Health.Paused(vendor, c.Credential, model))
			w.leave(c, "cooldown")
		} else {
			w.fail(c, verdict.Reason, failed.Public(), 0)
			w.leave(c, failed.Kind.String())
		}
		w.failures[len(w.failures)-1].param = failed.Param
		return false, nil
	}
}

// pausable keeps pauses to the two answers with which vendors ask for one.
func pausable(err *vendors.Error) bool { return err.Status == 429 || err.Status == 503 }

// attempt makes one vendor call and measures it. A nil error is an answer.
func (w *walk) attempt(ctx context.Context, c *routing.Candidate, turn Turn, try func(context.Context, *Attempt) error) (*Attempt, *vendors.Error) {
	o := &w.d.options
	vendor, model := c.Spec.GetVendor(), c.Spec.GetId()
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	w.outcome.Attempts++
	w.outcome.Vendor, w.outcome.Model = vendor, model
	a := &Attempt{Candidate: c, Number: w.outcome.Attempts, now: o.Now, started: o.Now(), timeout: o.Timeout}
	if o.Timeout > 0 {
		a.watchdog = time.AfterFunc(o.Timeout, func() { cancel(errStalled) })
		defer a.watchdog.Stop()
	}
	o.Metrics.active.WithLabelValues(vendor, model).Inc()
	defer o.Metrics.active.WithLabelValues(vendor, model).Dec()

	defer func() {
		if trouble := recover(); trouble != nil {
			o.Health.Unjudged(vendor, model, turn) // or a probe that panicked would keep the circuit half open for ever
			panic(trouble)
		}
	}()
	err := try(callCtx, a)

	w.outcome.Usage = sum(w.outcome.Usage, a.usage)
	w.outcome.FirstContent = 0
	if a.committed {
		w.outcome.FirstContent = a.firstAt.Sub(a.started)
	}
	failed := w.classify(ctx, callCtx, c, err)
	w.measure(a, failed)
	return a, failed
}

// sum adds what an attempt used to what those before it did: vendors bill each.
func sum(before, more *ktmsv1.TokensUsage) *ktmsv1.TokensUsage {
	if before == nil || more == nil {
		if before == nil {
			return more
		}
		return before
	}
	return &ktmsv1.TokensUsage{
		Input: before.GetInput() + more.GetInput(), Output: before.GetOutput() + more.GetOutput(),
		CacheRead: before.GetCacheRead() + more.GetCacheRead(), CacheWrite: before.GetCacheWrite() + more.GetCacheWrite(),
		CacheWrite_1H: before.GetCacheWrite_1H() + more.GetCacheWrite_1H(), Reasoning: before.GetReasoning() + more.GetReasoning(),
		CostNanousd: before.GetCostNanousd() + more.GetCostNanousd(), Estimated: before.GetEstimated() || more.GetEstimated(),
	}
}

// classify turns whatever an attempt ended in into a vendor error, with the caller's departure and the watchdog told
// apart from the vendor's own failures.
func (w *walk) classify(ctx, callCtx context.Context, c *routing.Candidate, err error) *vendors.Error {
	if err == nil {
		return nil
	}
	vendor := c.Spec.GetVendor()
	if ctx.Err() != nil {
		return &vendors.Error{Kind: vendors.Canceled, Vendor: vendor, Err: context.Cause(ctx)}
	}
	if errors.Is(context.Cause(callCtx), errStalled) {
		return &vendors.Error{Kind: vendors.Unavailable, Vendor: vendor, Err: err,
			Message: fmt.Sprintf("nothing that is of use came within %v", w.d.options.Timeout)}
	}
	if known, ok := errors.AsType[*vendors.Error](err); ok {
		return known
	}
	// What is left is the caller's side: its connection broke while a chunk was written.
	return &vendors.Error{Kind: vendors.Canceled, Vendor: vendor, Err: err}
}

func (w *walk) measure(a *Attempt, failed *vendors.Error) {
	if neverLeft(failed) {
		return
	}
	m := w.d.options.Metrics
	vendor, model := a.Candidate.Spec.GetVendor(), a.Candidate.Spec.GetId()
	outcome := outcomeSuccess
	if failed != nil {
		outcome = outcomeError
		if failed.Kind == vendors.Canceled {
			outcome = outcomeCanceled
		}
	}
	m.requests.WithLabelValues(vendor, model, w.effort, outcome).Inc()
	m.duration.WithLabelValues(vendor, model, w.effort).Observe(a.now().Sub(a.started).Seconds())
	if !a.firstAt.IsZero() {
		m.firstToken.WithLabelValues(vendor, model).Observe(a.firstAt.Sub(a.started).Seconds())
	}
	if a.usage != nil {
		m.tokens.WithLabelValues(vendor, model, "input").Add(float64(a.usage.GetInput()))
		m.tokens.WithLabelValues(vendor, model, "output").Add(float64(a.usage.GetOutput()))
		m.cacheTokens.WithLabelValues(vendor, model, "read").Add(float64(a.usage.GetCacheRead()))
		m.cacheTokens.WithLabelValues(vendor, model, "write").Add(float64(a.usage.GetCacheWrite() + a.usage.GetCacheWrite_1H()))
	}
}

// neverLeft reports whether a request was not sent at all: the dialect cannot carry it.
func neverLeft(failed *vendors.Error) bool {
	return failed != nil && failed.Kind == vendors.Unsupported && failed.Status == 0
}

func levelOf(failed *vendors.Error) slog.Level {
	if failed.Kind == vendors.Canceled || neverLeft(failed) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

func effortLabel(effort ktmsv1.Effort) string {
	switch effort {
	case ktmsv1.Effort_EFFORT_LOW:
		return "low"
	case ktmsv1.Effort_EFFORT_MEDIUM:
		return "medium"
	case ktmsv1.Effort_EFFORT_HIGH:
		return "high"
	default:
		return "none"
	}
}

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
