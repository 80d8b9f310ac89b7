package pooltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

var settleTests = []test{
	{"replaces what was booked", testSettle},
	{"counts once", testSettleOnce},
	{"is remembered", testSettleMemory},
	{"takes everything back", testSettleVoid},
	{"leaves what is not named", testSettlePart},
	{"may be more than the limit", testSettleOver},
	{"books what was never admitted", testSettleUnknown},
	{"debits once", testDebitOnce},
	{"debits what does not fit", testDebitOver},
	{"debits the windows of now", testDebitNow},
	{"does nothing for those who are gone", testContext},
}

func testSettle(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	for _, came := range []int64{5, 10, 15, 0} { // less than booked, as much, more, and nothing
		id, bookings := h.admit(of(10, charge))
		before := h.read(charge)
		h.settle(id, bookings, came)
		h.wantUse(charge, before.Settled+came, before.Reserved-10)
	}
	h.wantUse(charge, 30, 0)
	h.wantRemaining(charge, 70)
}

func testSettleOnce(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge, rate := within("cap", 100, pool.Day), perMinute("tpm", 1000, 999)
	id, bookings := h.admit(of(10, charge), of(100, rate))
	h.settle(id, bookings, 12, 300)
	for range 3 {
		h.settle(id, bookings, 12, 300)
		h.settle(id, bookings, 99, 999)
		h.void(id, bookings)
	}
	h.wantUse(charge, 12, 0)
	h.wantRemaining(rate, 700)
}

func testSettleMemory(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	id, bookings := h.admit(of(10, charge))
	h.settle(id, bookings, 12)
	h.clock.Advance(pool.SettleMemory - time.Millisecond)
	h.settle(id, bookings, 12)
	h.wantUse(charge, 12, 0)

	h.debit("batch", of(20, charge))
	h.clock.Advance(10 * time.Hour)
	h.debit("batch", of(20, charge))
	h.wantUse(charge, 32, 0)
	h.clock.Advance(pool.DebitMemory - 10*time.Hour - time.Millisecond)
	h.debit("batch", of(20, charge))
	h.wantUse(charge, 0, 0) // the next day
}

func testSettleVoid(t *testing.T, opener Opener) {
	h := opener.open(t)
	charges := []pool.Charge{of(10, within("cap", 100, pool.Day)), of(100, perMinute("tpm", 1000, 999)), perMinute("rpm", 1, 0)}
	first, bookings := h.admit(charges...)
	h.void(first, bookings)
	h.settle(first, bookings, 10, 100, 1) // too late: nobody was reached
	for _, charge := range charges {
		if s := h.read(charge); s.Settled != 0 || s.Reserved != 0 || s.Remaining != h.read(renamed("fresh", charge)).Remaining {
			t.Errorf("%s stands at %+v after a void", charge.Key, s)
		}
	}
	second, bookings := h.admit(charges...)
	h.settle(second, bookings, 9, 90, 1)
	h.void(second, bookings) // too late: it was paid
	h.wantUse(charges[0], 9, 0)
	h.wantRemaining(charges[1], 910)
	h.wantRemaining(charges[2], 0)
}

func testSettlePart(t *testing.T, opener Opener) {
	h := opener.open(t)
	day, month, rpm := within("day", 100, pool.Day), within("month", 100, pool.Month), perMinute("rpm", 2, 1)
	id, bookings := h.admit(rpm, of(10, day), of(20, month))
	h.settle(id, bookings[1:2], 15)
	h.wantUse(day, 15, 0)
	h.wantUse(month, 0, 20)
	h.wantRemaining(rpm, 1)
	h.renew(2*lease, pool.Renewal{ID: id, Bookings: bookings})
	h.clock.Advance(lease)
	h.wantUse(day, 15, 0)
	h.wantUse(month, 0, 20)
	h.clock.Advance(lease)
	h.wantUse(month, 0, 0)
}

func testSettleOver(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	id, bookings := h.admit(of(10, charge))
	h.settle(id, bookings, 250)
	h.wantUse(charge, 250, 0)
	h.wantRemaining(charge, 0)
	if r := h.refuse(charge)[0]; r.Never || r.Settled != 250 {
		t.Errorf("refused with %+v, want 250 settled and room in the next window", r)
	}
}

// testSettleUnknown: the answer to Admit may have been lost, or a pool may have lost its memory.
func testSettleUnknown(t *testing.T, opener Opener) {
	h := opener.open(t)
	day, rate := within("day", 100, pool.Day), perMinute("tpm", 1000, 999)
	_, bookings := h.admit(of(10, day), of(10, rate))
	h.settle("unknown", bookings, 30, 40)
	h.wantUse(day, 30, 10)
	h.wantRemaining(rate, 1000-40)
}

func testDebitOnce(t *testing.T, opener Opener) {
	h := opener.open(t)
	day, month, rate := within("day", 100, pool.Day), within("month", 100, pool.Month), perMinute("tpm", 1000, 999)
	for range 3 {
		h.debit("batch-1", of(10, day), of(20, rate), of(30, month))
	}
	h.debit("batch-2", of(1, day))
	h.wantUse(day, 11, 0)
	h.wantUse(month, 30, 0)
	h.wantRemaining(rate, 980)

	id, bookings := h.admit(of(5, day))
	h.settle(id, bookings, 5)
	h.debit(id, of(50, day)) // what is settled is not debited once more
	h.wantUse(day, 16, 0)
	h.settle("batch-2", bookings, 50)
	h.wantUse(day, 16, 0)
}

func testDebitOver(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	h.admit(of(60, charge))
	h.debit("batch", of(500, charge))
	h.wantUse(charge, 500, 60)
	h.refuse(charge)
	h.clock.Advance(lease)
	h.wantUse(charge, 500, 0)
}

func testDebitNow(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Span(5*time.Second))
	h.debit("batch-1", of(10, charge))
	h.clock.Advance(5 * time.Second)
	h.debit("batch-2", of(20, charge))
	h.debit("batch-1", of(10, charge))
	h.wantUse(charge, 20, 0)
}

func testContext(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	id, bookings := h.admit(of(10, charge))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, admitErr := h.Admit(ended, "other", lease, []pool.Charge{charge})
	_, readErr := h.Read(ended, []pool.Charge{charge})
	for operation, err := range map[string]error{
		"admit":  admitErr,
		"read":   readErr,
		"renew":  h.Renew(ended, []pool.Renewal{{ID: id, Bookings: bookings}}, time.Hour),
		"settle": h.Settle(ended, id, []pool.Actual{{Booking: bookings[0], Came: 50}}),
		"debit":  h.Debit(ended, "batch", []pool.Charge{charge}),
	} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, pool.ErrUnavailable) {
			t.Errorf("%s: got %v, want the context's own error", operation, err)
		}
	}
	h.wantUse(charge, 0, 10)
	h.clock.Advance(lease)
	h.wantUse(charge, 0, 0)
	h.settle(id, bookings, 20)
	h.debit("batch", charge)
	h.wantUse(charge, 21, 0)
}
