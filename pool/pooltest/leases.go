package pooltest

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

var leaseTests = []test{
	{"end by themselves", testLeaseEnds},
	{"end one by one", testLeasesEnd},
	{"free what a crash left behind", testLeaseCrash},
	{"go on when renewed", testLeaseRenewed},
	{"stay ended", testLeaseRenewedLate},
	{"stay settled", testLeaseRenewedSettled},
	{"do not follow into the next window", testLeaseEdge},
	{"count in full when settled after their end", testLeaseSettledLate},
	{"are one for each id", testLeaseTwice},
	{"are one for each amount of an id", testLeaseTwiceOther},
}

func testLeaseEnds(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	h.admit(of(60, charge))
	h.clock.Advance(lease - time.Microsecond)
	h.wantUse(charge, 0, 60)
	h.refuse(of(41, charge))
	h.clock.Advance(time.Microsecond)
	h.wantUse(charge, 0, 0)
	h.wantRemaining(charge, 100)
	h.admit(of(100, charge))
	h.wantUse(charge, 0, 100)
	h.clock.Advance(lease)
	h.wantUse(charge, 0, 0)
}

func testLeasesEnd(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 1000, pool.Day)
	const count = 20
	for i := range int64(count) {
		h.admit(of(i+1, charge))
		h.clock.Advance(time.Second)
	}
	h.clock.Advance(lease - count*time.Second)
	left := int64(count * (count + 1) / 2)
	for i := range int64(count) {
		left -= i + 1
		h.wantUse(charge, 0, left)
		if i%3 == 0 { // whether or not somebody books in between
			h.admit(of(0, charge))
		}
		h.clock.Advance(time.Second)
	}
}

func testLeaseCrash(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 2000, pool.Day)
	settled := int64(0)
	for i := range int64(50) {
		id, bookings := h.admit(of(20, charge))
		if i%5 == 0 {
			h.settle(id, bookings, i)
			settled += i
		}
	}
	h.wantUse(charge, settled, 40*20)
	h.clock.Advance(lease)
	h.wantUse(charge, settled, 0)
	h.wantRemaining(charge, 2000-settled)
}

func testLeaseRenewed(t *testing.T, opener Opener) {
	h := opener.open(t)
	day, month, rate := within("day", 100, pool.Day), within("month", 100, pool.Month), perMinute("rpm", 2, 1)
	first, ofFirst := h.admit(of(10, day), rate, of(11, month))
	second, ofSecond := h.admit(of(20, day), of(0, month))
	h.admit(of(30, day), of(31, month)) // nobody renews it
	h.clock.Advance(lease - time.Second)
	h.renew(lease, pool.Renewal{ID: first, Bookings: ofFirst}, pool.Renewal{ID: second, Bookings: ofSecond})
	h.clock.Advance(time.Second)
	h.wantUse(day, 0, 30)
	h.wantUse(month, 0, 11)
	h.clock.Advance(lease - time.Second - time.Microsecond)
	h.wantUse(day, 0, 30)
	h.renew(time.Hour, pool.Renewal{ID: second, Bookings: ofSecond})
	h.clock.Advance(time.Microsecond)
	h.wantUse(day, 0, 20)
	h.wantUse(month, 0, 0)
	h.wantRemaining(rate, 2) // a renewal books nothing on rates
	h.clock.Advance(time.Hour - 2*time.Microsecond)
	h.wantUse(day, 0, 20)
	h.settle(second, ofSecond, 25)
	h.wantUse(day, 25, 0)
	h.clock.Advance(time.Hour)
	h.wantUse(day, 25, 0)
	h.renew(lease)
}

func testLeaseRenewedLate(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	id, bookings := h.admit(of(60, charge))
	h.clock.Advance(lease)
	h.renew(lease, pool.Renewal{ID: id, Bookings: bookings}) // the first to look
	h.wantUse(charge, 0, 0)
	h.admit(of(100, charge))
	h.renew(lease, pool.Renewal{ID: id, Bookings: bookings})
	h.wantUse(charge, 0, 100)
	h.renew(lease, pool.Renewal{ID: "nobody", Bookings: bookings})
	h.wantUse(charge, 0, 100)
	h.clock.Advance(lease)
	h.wantUse(charge, 0, 0)
}

func testLeaseRenewedSettled(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	id, bookings := h.admit(of(60, charge))
	h.settle(id, bookings, 50)
	h.renew(lease, pool.Renewal{ID: id, Bookings: bookings})
	h.wantUse(charge, 50, 0)
	id, bookings = h.admit(of(40, charge))
	h.void(id, bookings)
	h.renew(lease, pool.Renewal{ID: id, Bookings: bookings})
	h.wantUse(charge, 50, 0)
}

func testLeaseEdge(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Span(5*time.Second))
	id, bookings := h.admit(of(60, charge))
	h.clock.Advance(5 * time.Second)
	h.renew(lease, pool.Renewal{ID: id, Bookings: bookings})
	h.wantUse(charge, 0, 0)
	h.admit(of(100, charge))
	h.clock.Advance(-5 * time.Second)
	h.wantUse(charge, 0, 60)
	h.clock.Advance(5 * time.Second)
	h.void(id, bookings)
	h.wantUse(charge, 0, 100)
}

func testLeaseSettledLate(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	unseen, bookings := h.admit(of(60, charge))
	h.clock.Advance(lease)
	h.settle(unseen, bookings, 50) // the first to look since it ended
	h.wantUse(charge, 50, 0)

	seen, bookings := h.admit(of(40, charge))
	h.clock.Advance(lease)
	other, live := h.admit(of(50, charge))
	h.settle(seen, bookings, 30)
	h.wantUse(charge, 80, 50) // more than the cap, by what was settled after its end
	h.refuse(of(0, charge))
	h.settle(other, live, 0)
	h.wantUse(charge, 80, 0)
}

// testLeaseTwice admits once more what was admitted already, as one does who got no answer.
func testLeaseTwice(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := of(40, within("cap", 100, pool.Day))
	for range 2 {
		if bookings, err := h.Admit(t.Context(), "call", lease, []pool.Charge{charge}); err != nil || bookings[0].Reserved != 40 {
			t.Fatalf("booked as %+v, %v; want 40 reserved", bookings, err)
		}
		h.wantUse(charge, 0, 40)
		h.clock.Advance(lease / 2)
	}
	h.wantUse(charge, 0, 40) // until a lease after the second
	h.clock.Advance(lease / 2)
	h.wantUse(charge, 0, 0)
	for range 2 {
		if _, err := h.Admit(t.Context(), "other", lease, []pool.Charge{charge}); err != nil {
			t.Fatal(err)
		}
	}
	h.settle("other", []pool.Booking{{Charge: charge, Standing: h.read(charge)}}, 30)
	h.wantUse(charge, 30, 0)
	for _, ttl := range []time.Duration{lease, time.Second} { // which may be shorter than the first
		if _, err := h.Admit(t.Context(), "shorter", ttl, []pool.Charge{of(20, charge)}); err != nil {
			t.Fatal(err)
		}
	}
	h.clock.Advance(time.Second)
	h.wantUse(charge, 30, 0)
}

// testLeaseTwiceOther admits an id once more for another amount, and for a shorter time.
func testLeaseTwiceOther(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	admit := func(amount int64, ttl time.Duration) []pool.Booking {
		t.Helper()
		bookings, err := h.Admit(t.Context(), "call", ttl, []pool.Charge{of(amount, charge)})
		if err != nil {
			t.Fatal(err)
		}
		return bookings
	}
	five := admit(5, lease)
	seven := admit(7, lease)
	if seven[0].Reserved != 12 {
		t.Errorf("booked as %+v, want 12 reserved", seven)
	}
	h.renew(2*lease, pool.Renewal{ID: "call", Bookings: seven})
	h.clock.Advance(lease)
	h.wantUse(charge, 0, 7)
	h.settle("call", five, 3) // which is over
	h.wantUse(charge, 3, 7)
	admit(7, time.Second)
	h.clock.Advance(time.Second - time.Microsecond)
	h.wantUse(charge, 3, 7)
	h.clock.Advance(time.Microsecond)
	h.wantUse(charge, 3, 0)
	h.settle("other", seven, 0)
	h.wantUse(charge, 3, 0)
}
