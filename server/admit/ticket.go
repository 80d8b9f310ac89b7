package admit

import (
	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/status"
)

// Ticket is one attempt that was admitted. It ends with exactly one of Settle and Void; what comes after that changes
// nothing. A nil Ticket is of an attempt that nothing limits.
type Ticket struct {
	account *Account
	id      pool.ID
	// bookings are those of the attempt; they do not change.
	bookings []pool.Booking
	// debits stand for them while the pool is away.
	debits []pool.Charge
	// held: a reservation is being renewed. rated: the rates of the model are among the bookings.
	held, rated bool

	over   bool
	voided bool
	usage  *ktmsv1.TokensUsage
}

// Settle ends the attempt with what it used; nil is nothing.
func (t *Ticket) Settle(usage *ktmsv1.TokensUsage) {
	if t != nil {
		t.settleOnce(usage)
	}
}

// Void ends an attempt that reached no vendor: its rates are given back, too.
func (t *Ticket) Void() {
	if t == nil || t.over {
		return
	}
	t.over, t.voided = true, true
	if t.rated {
		t.account.rated = "" // the next attempt at this model counts
	}
	t.letGo()
}

func (t *Ticket) settleOnce(usage *ktmsv1.TokensUsage) {
	if t.over {
		return
	}
	t.over, t.usage = true, usage
	t.account.tokens += tokens(usage)
	t.letGo()
}

// letGo ends the renewals: what the attempt reserves is about to be booked.
func (t *Ticket) letGo() {
	if t.held {
		t.held = false
		t.account.c.release(t)
	}
}

func tokens(u *ktmsv1.TokensUsage) int64 { return u.GetInput() + u.GetOutput() }

// reserves reports whether the attempt holds anything that ends by itself.
func (t *Ticket) reserves() bool {
	for _, b := range t.bookings {
		if !b.IsRate() {
			return true
		}
	}
	return false
}

// booking is what is to be booked; some is false for nothing.
func (t *Ticket) booking() (b booking, some bool) {
	b.id = t.id
	if t.voided {
		b.actuals = pool.Void(t.bookings)
		return b, len(b.actuals) > 0
	}
	for _, c := range t.debits {
		if c.Amount = t.came(c); c.Amount > 0 {
			b.debits = append(b.debits, c)
		}
	}
	for _, own := range t.bookings {
		came := t.came(own.Charge)
		if own.IsRate() && came == own.Amount {
			continue // nothing to correct
		}
		if b.actuals == nil {
			b.actuals = make([]pool.Actual, 0, len(t.bookings)+1) // one more may come at the end of the call
		}
		b.actuals = append(b.actuals, pool.Actual{Booking: own, Came: came})
	}
	return b, len(b.actuals)+len(b.debits) > 0
}

// came is what the attempt came to in the unit of a charge.
func (t *Ticket) came(c pool.Charge) int64 {
	switch status.Reason(c.Reason) {
	case status.ThrottledRPM, status.ThrottledKeyRPM:
		return 1
	case status.ThrottledKeyTPM, status.BudgetKey, status.BudgetUser:
		return amount(tokens(t.usage))
	default:
		return amount(t.usage.GetCostNanousd())
	}
}
