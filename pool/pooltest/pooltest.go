// Package pooltest is the suite that every implementation of pool.Meter runs, and the property that its money keeps.
package pooltest

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

// lease is how long reservations of the suite live.
const lease = time.Minute

// noon is when most tests begin: well within every span, and not on a whole second.
var noon = time.Date(2026, 5, 4, 12, 30, 17, 123456000, time.UTC)

// Opener makes Meters for the suite.
type Opener struct {
	// Fresh makes a Meter that has counted nothing yet, and takes the time from the clock. It is closed when the test
	// ends.
	Fresh func(t *testing.T, clock *Clock) pool.Meter
}

// Run runs the suite.
func Run(t *testing.T, opener Opener) {
	for _, subject := range []struct {
		name  string
		tests []test
	}{
		{"rates", rateTests},
		{"windows", windowTests},
		{"leases", leaseTests},
		{"settling", settleTests},
		{"several counters", severalTests},
		{"money", moneyTests},
	} {
		t.Run(subject.name, func(t *testing.T) {
			for _, test := range subject.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(t, opener)
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, opener Opener)
}

// harness is a Meter with what a test needs around it: a clock that the test moves, and ids that were never used.
type harness struct {
	*testing.T
	pool.Meter
	clock *Clock
	ids   int
}

func (o Opener) open(t *testing.T) *harness { return o.openAt(t, noon) }

func (o Opener) openAt(t *testing.T, start time.Time) *harness {
	clock := NewClock(start)
	return &harness{T: t, Meter: o.Fresh(t, clock), clock: clock}
}

func (h *harness) newID() pool.ID {
	h.ids++
	return pool.ID("attempt-" + strconv.Itoa(h.ids))
}

// try admits under a new id. It returns the bookings, or the refusal.
func (h *harness) try(charges ...pool.Charge) (pool.ID, []pool.Booking, *pool.Refusal) {
	h.Helper()
	id := h.newID()
	bookings, err := h.Admit(h.Context(), id, lease, charges)
	var refusal *pool.Refusal
	switch {
	case errors.As(err, &refusal):
		if bookings != nil || len(refusal.Refused) == 0 {
			h.Fatalf("refused by %d counters with %d bookings, want at least one and none", len(refusal.Refused), len(bookings))
		}
	case err != nil:
		h.Fatal(err)
	case len(bookings) != len(charges):
		h.Fatalf("%d bookings for %d charges", len(bookings), len(charges))
	}
	return id, bookings, refusal
}

// admit admits what must fit.
func (h *harness) admit(charges ...pool.Charge) (pool.ID, []pool.Booking) {
	h.Helper()
	id, bookings, refusal := h.try(charges...)
	if refusal != nil {
		h.Fatalf("%s: %v: %+v", h.clock.Now(), refusal, refusal.Refused)
	}
	return id, bookings
}

// refuse tries what must not fit, under the first charge at least, and returns the counters that refused.
func (h *harness) refuse(charges ...pool.Charge) []pool.Refused {
	h.Helper()
	_, bookings, refusal := h.try(charges...)
	if refusal == nil {
		h.Fatalf("%s: admitted, want a refusal: %+v", h.clock.Now(), bookings)
	}
	return refusal.Refused
}

// atOnce counts how many times the same charges fit one after another.
func (h *harness) atOnce(charges ...pool.Charge) int {
	h.Helper()
	for n := 0; ; n++ {
		if _, _, refusal := h.try(charges...); refusal != nil {
			return n
		}
		if n > 10_000 {
			h.Fatal("it fits without end")
		}
	}
}

// settle settles each booking to what it came to, in order.
func (h *harness) settle(id pool.ID, bookings []pool.Booking, came ...int64) {
	h.Helper()
	actuals := make([]pool.Actual, 0, len(came))
	for i, amount := range came {
		actuals = append(actuals, pool.Actual{Booking: bookings[i], Came: amount})
	}
	if err := h.Settle(h.Context(), id, actuals); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) void(id pool.ID, bookings []pool.Booking) {
	h.Helper()
	if err := h.Settle(h.Context(), id, pool.Void(bookings)); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) renew(ttl time.Duration, attempts ...pool.Renewal) {
	h.Helper()
	if err := h.Renew(h.Context(), attempts, ttl); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) debit(id pool.ID, charges ...pool.Charge) {
	h.Helper()
	if err := h.Debit(h.Context(), id, charges); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) read(charge pool.Charge) pool.Standing {
	h.Helper()
	standings, err := h.Read(h.Context(), []pool.Charge{charge})
	if err != nil || len(standings) != 1 {
		h.Fatalf("read %d standings of 1: %v", len(standings), err)
	}
	return standings[0]
}

// wantUse compares a window's use.
func (h *harness) wantUse(charge pool.Charge, settled, reserved int64) {
	h.Helper()
	if s := h.read(charge); s.Settled != settled || s.Reserved != reserved {
		h.Fatalf("%s at %s: %d settled and %d reserved, want %d and %d", charge.Key, h.clock.Now(), s.Settled, s.Reserved, settled, reserved)
	}
}

// wantRemaining compares what still fits.
func (h *harness) wantRemaining(charge pool.Charge, want int64) {
	h.Helper()
	if got := h.read(charge).Remaining; got != want {
		h.Fatalf("%s at %s: %d remaining, want %d", charge.Key, h.clock.Now(), got, want)
	}
}

// same compares two standings.
func same(a, b pool.Standing) bool {
	return a.Settled == b.Settled && a.Reserved == b.Reserved && a.Remaining == b.Remaining && a.Reset == b.Reset && a.Start.Equal(b.Start)
}

// perMinute is a charge of one on a rate.
func perMinute(key string, limit, burst int64) pool.Charge {
	return pool.Charge{Key: key, Reason: "rate", Amount: 1, Rate: pool.Rate{Limit: limit, Per: time.Minute, Burst: burst}}
}

// within is a charge of one on a window.
func within(key string, limit int64, span pool.Span) pool.Charge {
	return pool.Charge{Key: key, Reason: "window", Amount: 1, Window: pool.Window{Limit: limit, Span: span}}
}

// of is the same charge with another amount.
func of(amount int64, charge pool.Charge) pool.Charge {
	charge.Amount = amount
	return charge
}

// renamed is the same charge on another counter.
func renamed(key string, charge pool.Charge) pool.Charge {
	charge.Key = key
	return charge
}
