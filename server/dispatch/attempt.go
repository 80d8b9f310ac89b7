package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/vendors"
)

// Attempt is one vendor call of a walk. It is used by one goroutine.
type Attempt struct {
	Candidate *routing.Candidate
	// Number counts the attempts of the walk from 1.
	Number int
	// Tried are the machines of the local pool that have failed the call.
	Tried []string

	now       func() time.Time
	started   time.Time
	watchdog  *time.Timer
	timeout   time.Duration
	committed atomic.Bool
	cancel    context.CancelCauseFunc
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
	if a.committed.CompareAndSwap(false, true) {
		a.firstAt = a.now()
	}
}

// hearOut is how long a vendor that is in the middle of its answer is listened to after the caller left: what the answer
// cost comes at its end, which often is on its way already. A vendor that goes on talking is cut off then.
const hearOut = 250 * time.Millisecond

// Left says that nobody takes the answer any more.
func (a *Attempt) Left() { a.leave(errLeft) }

func (a *Attempt) leave(cause error) {
	if !a.committed.Load() {
		a.cancel(cause)
		return
	}
	time.AfterFunc(hearOut, func() { a.cancel(cause) })
}

var errLeft = errors.New("the caller takes no more of the answer")

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

// attempt makes one vendor call, measures it and settles it. A nil error is an answer.
func (w *walk) attempt(ctx context.Context, c *routing.Candidate, turn Turn, ticket *admit.Ticket, try func(context.Context, *Attempt) error) (*Attempt, *vendors.Error) {
	o := &w.d.options
	vendor, model := c.Spec.GetVendor(), c.Spec.GetId()
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)

	w.outcome.Attempts++
	w.outcome.Vendor, w.outcome.Model = vendor, model
	a := &Attempt{Candidate: c, Number: w.outcome.Attempts, Tried: w.tried,
		now: o.Now, started: o.Now(), timeout: o.Timeout, cancel: cancel}
	defer context.AfterFunc(ctx, func() { a.leave(context.Cause(ctx)) })()
	if o.Timeout > 0 {
		a.watchdog = time.AfterFunc(o.Timeout, func() { cancel(vendors.ErrSilent) })
		defer a.watchdog.Stop()
	}
	o.Metrics.active.WithLabelValues(vendor, model).Inc()
	defer o.Metrics.active.WithLabelValues(vendor, model).Dec()

	defer func() {
		if trouble := recover(); trouble != nil {
			o.Health.Unjudged(vendor, model, turn) // or a probe that panicked would keep the circuit half open for ever
			ticket.Settle(a.usage)
			panic(trouble)
		}
	}()
	err := try(callCtx, a)

	w.outcome.Usage = sum(w.outcome.Usage, a.usage)
	w.outcome.FirstContent = 0
	if a.committed.Load() {
		w.outcome.FirstContent = a.firstAt.Sub(a.started)
	}
	failed := w.classify(ctx, callCtx, c, err)
	if a.usage == nil && Unreached(failed) {
		ticket.Void()
	} else {
		ticket.Settle(a.usage)
	}
	w.outcome.MaybeBilled = w.outcome.MaybeBilled || maybeBilled(failed, a)
	w.measure(a, failed)
	return a, failed
}

// Unreached reports whether a request certainly got to no vendor.
func Unreached(failed *vendors.Error) bool {
	if failed == nil || failed.Status != 0 {
		return false
	}
	var network *net.OpError
	return neverLeft(failed) || errors.As(failed.Err, &network) && network.Op == "dial"
}

// maybeBilled reports whether an attempt ended in a way that leaves open what the vendor did with the request.
func maybeBilled(failed *vendors.Error, a *Attempt) bool {
	return failed != nil && (a.usage == nil || a.usage.GetEstimated()) && !Unreached(failed) &&
		(failed.Kind == vendors.Canceled || failed.Kind == vendors.Unavailable && failed.Status == 0)
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
		_, unsent := whereabouts(err)
		return &vendors.Error{Kind: vendors.Canceled, Vendor: vendor, Unsent: unsent, Err: context.Cause(ctx)}
	}
	known, ours := errors.AsType[*vendors.Error](err)
	if errors.Is(context.Cause(callCtx), vendors.ErrSilent) && (!ours || known.Kind != vendors.Busy) {
		node, unsent := whereabouts(err)
		return &vendors.Error{Kind: vendors.Unavailable, Vendor: vendor, Node: node, Unsent: unsent, Err: err,
			Message: fmt.Sprintf("nothing that is of use came within %v", w.d.options.Timeout)}
	}
	if ours {
		return known
	}
	// What is left is the caller's side: its connection broke while a chunk was written.
	return &vendors.Error{Kind: vendors.Canceled, Vendor: vendor, Err: err}
}

// whereabouts is how far an attempt got: the machine that it was on, or that nothing was sent at all.
func whereabouts(err error) (node string, unsent bool) {
	if known, ok := errors.AsType[*vendors.Error](err); ok {
		return known.Node, known.Unsent
	}
	return "", false
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

// neverLeft reports whether a request was not sent at all: the dialect cannot carry it, or nobody was there to send it to.
func neverLeft(failed *vendors.Error) bool {
	return failed != nil && (failed.Unsent || failed.Kind == vendors.Unsupported && failed.Status == 0)
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
