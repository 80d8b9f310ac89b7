package admit

import (
	"context"
	"errors"
	"slices"
	"strconv"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// Call is what limits need to know of a client call.
type Call struct {
	// ID is the request's, unique for ever.
	ID     string
	Caller *caller.Caller
	// UserID is the user whom the request names; empty for none.
	UserID string
	Limits Limits
	// Input estimates the prompt in tokens. It is asked under a limit that needs it alone, and then for each attempt.
	Input func() int64
	// Choices is how many answers are asked for; 0 is one.
	Choices int64
	// MaxOutput is the most tokens of one answer that the caller allows; 0 is no bound.
	MaxOutput int64
	// Output is the most tokens of one answer that a target is asked for, or 0 where nothing bounds them. A nil Output is of
	// a call without an answer to pay for.
	Output func(vendors.Target) int64
	// LongCache: the prompt may be written to an hour's cache.
	LongCache bool
}

// Account is one client call at the counters. It is used by one goroutine. A nil Account admits everything.
type Account struct {
	c       *Controller
	call    Call
	subject string

	attempts int
	// opened: the charges of the call are booked; bookings are those that its end corrects.
	opened   bool
	bookings []pool.Booking
	// rated is the model whose rates this call has been counted on.
	rated string
	// away: the pool did not answer this call, which does not ask it again.
	away, unmetered bool
	// last is the attempt that is still to be booked; it goes with the end of the call, or before the next attempt.
	last *Ticket
	// tokens is what all attempts used together.
	tokens     int64
	allowances []status.Allowance
	counted    []status.Reason
}

// output is the most tokens that all answers of a target may have, as far as anybody can tell.
func (a *Account) output(target vendors.Target) int64 {
	if a.call.Output == nil {
		return 0
	}
	each := a.call.Output(target)
	if each == 0 {
		each = a.c.options.OutputReserve
	}
	return a.times(within(each, target.MaxOutputTokens))
}

// allowed is the most tokens of all answers by what the caller allows a model that has no more than most; 0 is no bound.
func (a *Account) allowed(most int64) int64 {
	return a.times(within(a.call.MaxOutput, most))
}

// times is a number of tokens for each answer, and never more than counters count.
func (a *Account) times(each int64) int64 {
	choices := max(a.call.Choices, 1)
	if each > pool.MaxAmount/choices {
		return pool.MaxAmount
	}
	return each * choices
}

// within is a number of tokens, or the most that a model has where that is known and less.
func within(tokens, most int64) int64 {
	if most > 0 {
		return min(tokens, most)
	}
	return tokens
}

func (a *Account) user() string {
	if a.subject == "" {
		a.subject = User(a.call.UserID, a.call.Caller.KeyName)
	}
	return a.subject
}

// Allowances are how far the caller is from its rates, as of the last attempt that was admitted.
func (a *Account) Allowances() []status.Allowance {
	if a == nil {
		return nil
	}
	return a.allowances
}

// Admit books an attempt at a model, together with the call itself at the first one, in one round trip: all of it or
// nothing. The Ticket has to be settled; it may be nil where nothing limits the attempt.
func (a *Account) Admit(ctx context.Context, m *ktmsv1.ModelSpec, target vendors.Target) (*Ticket, *Refusal) {
	if a == nil {
		return nil, nil
	}
	a.book(ctx) // what the attempt before does not need is there for this one
	var charges []pool.Charge
	if !a.opened {
		charges = a.callCharges(charges)
	}
	ofCall := len(charges)
	if a.rated != m.GetId() {
		charges = a.rateCharges(charges, m)
	}
	rates := len(charges)
	charges = a.budgetCharges(charges, m)
	budgets := len(charges)
	charges = a.spendCharges(charges, m, target)
	if len(charges) == 0 && len(a.bookings) == 0 {
		a.opened = true
		return nil, nil
	}
	a.attempts++
	t := &Ticket{account: a, id: pool.ID(a.call.ID + "/" + strconv.Itoa(a.attempts))}
	if len(charges) == 0 { // its tokens are the call's
		a.last = t
		return t, nil
	}
	var err error
	if a.away {
		err = pool.ErrUnavailable
	} else {
		// A caller that leaves now must not leave behind what is being booked. The pool has a time limit of its own.
		t.bookings, err = a.c.options.Meter.Admit(context.WithoutCancel(ctx), t.id, a.c.options.Lease, charges)
	}
	if err != nil {
		return a.notAdmitted(t, err, charges[rates:], len(charges) > budgets)
	}
	a.allow(t.bookings)
	a.opened = true
	a.bookings = append(a.bookings, t.bookings[:ofCall]...)
	if rates > ofCall {
		a.rated, t.rated = m.GetId(), true
	}
	t.bookings = t.bookings[ofCall:]
	a.last = t
	if t.reserves() {
		t.held = true
		a.c.hold(t)
	}
	return t, nil
}

// notAdmitted is what becomes of an attempt that was not booked. The windows are those of the attempt.
func (a *Account) notAdmitted(t *Ticket, err error, windows []pool.Charge, money bool) (*Ticket, *Refusal) {
	if refused, ok := errors.AsType[*pool.Refusal](err); ok {
		return nil, a.refuse(refused)
	}
	a.away = true
	if money && a.c.options.FailClosed {
		a.count(status.SpendUnavailable)
		return nil, &Refusal{Reason: status.SpendUnavailable,
			Text: "the counters of the spend limits do not answer, and spend limits are set to refuse calls then"}
	}
	// The call goes on unmetered. What it comes to is booked when the counters are back, whether or not it fits; not on
	// rates, where an outage would be paid for with a long wait.
	a.opened, a.unmetered = true, true
	t.debits = windows
	a.last = t
	return t, nil
}

// Unmetered reports whether an attempt was let through because the counters did not answer.
func (a *Account) Unmetered() bool { return a != nil && a.unmetered }

// book books the last attempt, if that has not been done.
func (a *Account) book(ctx context.Context) {
	t := a.last
	if t == nil {
		return
	}
	a.last = nil
	b, some := t.booking()
	switch {
	case !some:
	case a.away:
		a.c.later(b)
	default:
		a.away = !a.c.now(context.WithoutCancel(ctx), b)
	}
}

// Close ends the call: it books the last attempt, and the tokens of all of them on the key's rate. It does not wait.
func (a *Account) Close() {
	if a == nil {
		return
	}
	end := booking{id: pool.ID(a.call.ID + "/end")}
	if t := a.last; t != nil {
		t.settleOnce(nil)
		if b, some := t.booking(); some && len(b.debits) > 0 {
			a.c.later(b)
		} else if some {
			end = b // one trip for both
		}
	}
	for _, own := range a.bookings {
		if own.Reason == string(status.ThrottledKeyTPM) && own.Amount != a.tokens {
			end.actuals = append(end.actuals, pool.Actual{Booking: own, Came: amount(a.tokens)})
		}
	}
	if len(end.actuals) > 0 {
		a.c.later(end)
	}
	a.c.closed()
}

func (a *Account) count(reason status.Reason) {
	if slices.Contains(a.counted, reason) {
		return
	}
	a.counted = append(a.counted, reason)
	a.c.options.Throttled(reason)
}
