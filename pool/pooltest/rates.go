package pooltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

var rateTests = []test{
	{"admit to the microsecond", testRateEdge},
	{"admit steadily under pressure", testRateHammered},
	{"refuse for ever what is larger than all", testRateNever},
	{"make later calls pay for an underestimate", testRateUnderestimate},
	{"give back what was not needed", testRateRefund},
	{"give back no more than drains", testRateRefundLate},
	{"give back nothing that has drained", testRateRefundDrained},
	{"give back what has not drained", testRateRefundLeft},
	{"refuse nothing when one would fit", testRateZero},
	{"book no refused call", testRateRefused},
	{"take debits that do not fit", testRateDebit},
	{"follow a new limit", testRateChanged},
	{"keep a new limit when older calls end", testRateChangedSettle},
	{"go on after a clock that went back", testRateClockBack},
	{"say where they stand", testRateStanding},
	{"count enormous limits", testRateEnormous},
}

// testRateEdge counts how many go at once, and finds the instants at which one more does. The arithmetic of the test is
// its own: one unit drains per minute/limit, and instants are whole microseconds.
func testRateEdge(t *testing.T, opener Opener) {
	const minute = 60_000_000 // microseconds
	for _, limit := range []int64{1, 2, 7, 60} {
		for _, burst := range []int64{limit - 1, 0, 5} {
			t.Run(fmt.Sprintf("%d a minute with %d more", limit, burst), func(t *testing.T) {
				h := opener.open(t)
				charge := perMinute("rpm", limit, burst)
				if n := h.atOnce(charge); int64(n) != burst+1 {
					t.Fatalf("%d at once, want %d", n, burst+1)
				}
				began := h.clock.Now()
				// nth is when the nth one after the burst fits.
				nth := func(n int64) time.Duration {
					if burst == 0 { // each waits for an empty bucket, and the clock has no parts of microseconds
						return time.Duration(n*roundUp(minute, limit)) * time.Microsecond
					}
					return time.Duration(roundUp(n*minute, limit)) * time.Microsecond
				}
				wait := h.refuse(charge)[0].RetryAfter
				for n := int64(1); n <= 2*limit+1; n++ {
					if want := began.Add(nth(n)).Sub(h.clock.Now()); wait != want {
						t.Fatalf("the %dth comes back after %s, want %s", n, wait, want)
					}
					h.clock.Set(began.Add(nth(n) - time.Microsecond))
					if r := h.refuse(charge)[0]; r.RetryAfter != time.Microsecond || r.Never || r.Remaining != 0 {
						t.Fatalf("a microsecond too early: %+v", r)
					}
					h.clock.Advance(time.Microsecond)
					h.admit(charge)
					wait = h.refuse(charge)[0].RetryAfter
				}
				h.clock.Advance(time.Duration(burst+1) * time.Minute)
				if n := h.atOnce(charge); int64(n) != burst+1 {
					t.Errorf("after a pause %d at once, want %d", n, burst+1)
				}
			})
		}
	}
}

func roundUp(a, b int64) int64 {
	if a%b == 0 {
		return a / b
	}
	return a/b + 1
}

func testRateHammered(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := perMinute("rpm", 7, 6)
	admitted := int64(0)
	// 10 minutes, in steps that a seventh of a minute is no multiple of.
	const step, steps = 250 * time.Millisecond, 2400
	for i := range int64(steps) + 1 {
		for range 8 { // 7 are there at the start, and then never more than one
			if _, _, refusal := h.try(charge); refusal != nil {
				break
			}
			admitted++
		}
		if want := 7 + i*int64(step)*7/int64(time.Minute); admitted != want {
			t.Fatalf("%d admitted after %s, want %d", admitted, time.Duration(i)*step, want)
		}
		h.clock.Advance(step)
	}
}

func testRateNever(t *testing.T, opener Opener) {
	h := opener.open(t)
	tokens := perMinute("tpm", 1000, 999)
	if r := h.refuse(of(1001, tokens))[0]; !r.Never || r.Remaining != 1000 {
		t.Errorf("a cost of more than a minute: %+v, want never, and 1000 remaining", r)
	}
	h.admit(of(1000, tokens))
	if r := h.refuse(of(1000, tokens))[0]; r.Never || r.RetryAfter != time.Minute {
		t.Errorf("a cost of one minute after another: %+v, want it in a minute", r)
	}
	if r := h.refuse(of(pool.MaxAmount, tokens))[0]; !r.Never {
		t.Errorf("the largest amount: %+v, want never", r)
	}
	// Even when it is larger than everything, what it came to is booked.
	h.clock.Advance(time.Minute)
	id, bookings := h.admit(tokens)
	h.settle(id, bookings, 3000)
	if r := h.refuse(tokens)[0]; r.Never || r.RetryAfter != 2*time.Minute+60*time.Millisecond {
		t.Errorf("after 3000 tokens: %+v, want room in 2m0.06s", r)
	}
}

func testRateUnderestimate(t *testing.T, opener Opener) {
	h := opener.open(t)
	tokens := perMinute("tpm", 1000, 999)
	id, bookings := h.admit(of(100, tokens))
	h.settle(id, bookings, 1500)
	h.wantRemaining(tokens, 0)
	// 501 of 1000 a minute have to drain before one fits.
	wait := h.refuse(tokens)[0].RetryAfter
	if wait != 30_060*time.Millisecond {
		t.Fatalf("one token fits after %s, want 30.06s", wait)
	}
	h.clock.Advance(wait - time.Microsecond)
	h.refuse(tokens)
	h.clock.Advance(time.Microsecond)
	h.admit(tokens)
}

func testRateRefund(t *testing.T, opener Opener) {
	h := opener.open(t)
	tokens := perMinute("tpm", 1000, 999)
	first, bookings := h.admit(of(1000, tokens))
	h.wantRemaining(tokens, 0)
	h.settle(first, bookings, 200)
	h.wantRemaining(tokens, 800)
	second, bookings := h.admit(of(800, tokens))
	h.void(second, bookings)
	h.wantRemaining(tokens, 800)
	h.settle(second, bookings, 800) // it is void already
	h.wantRemaining(tokens, 800)
}

func testRateRefundLate(t *testing.T, opener Opener) {
	h := opener.open(t)
	tokens := perMinute("tpm", 1000, 999)
	id, bookings := h.admit(of(1000, tokens))
	h.clock.Advance(50 * time.Second)
	h.void(id, bookings)
	h.wantRemaining(tokens, 1000)
	if n := h.atOnce(of(100, tokens)); n != 10 {
		t.Errorf("%d times 100 at once, want 10", n)
	}
}

func testRateZero(t *testing.T, opener Opener) {
	h := opener.open(t)
	nothing := of(0, perMinute("rpm", 2, 1))
	for range 5 {
		_, bookings := h.admit(nothing)
		if s := bookings[0]; s.Remaining != 2 || s.Reset != 0 {
			t.Fatalf("nothing was booked, and it stands at %+v", s)
		}
	}
	h.admit(of(2, nothing))
	if r := h.refuse(nothing)[0]; r.RetryAfter != 30*time.Second || r.Never {
		t.Errorf("nothing on a full rate: %+v, want it when one fits, in 30s", r)
	}
	h.clock.Advance(30 * time.Second)
	h.admit(nothing)
	h.admit(of(1, nothing))
}

func testRateRefused(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := perMinute("rpm", 1, 0)
	h.admit(charge)
	for range 59 {
		h.clock.Advance(time.Second)
		h.refuse(charge)
	}
	h.clock.Advance(time.Second)
	h.admit(charge)
}

func testRateDebit(t *testing.T, opener Opener) {
	h := opener.open(t)
	tokens := perMinute("tpm", 1000, 999)
	h.debit("late", of(2500, tokens))
	h.debit("late", of(2500, tokens))
	if s := h.read(tokens); s.Remaining != 0 || s.Reset != 150*time.Second {
		t.Errorf("after a debit of 2500 it stands at %+v, want nothing left for 2m30s", s)
	}
	if r := h.refuse(tokens)[0]; r.RetryAfter != 90_060*time.Millisecond {
		t.Errorf("one fits after %s, want 1m30.06s", r.RetryAfter)
	}
}

// testRateRefundDrained ends calls, each of which was booked for much more than it came to and has drained since. Others
// come in between, and together they get no more than one would.
func testRateRefundDrained(t *testing.T, opener Opener) {
	const calls = 10
	h := opener.open(t)
	tokens, rpm := perMinute("tpm", 1000, 999), perMinute("rpm", 60, 0)
	var ids []pool.ID
	var all [][]pool.Booking
	for range calls {
		id, bookings := h.admit(of(1000, tokens), rpm)
		if want := h.clock.Now().Add(time.Minute); !bookings[0].DrainedAt.Equal(want) {
			t.Fatalf("drained at %s, want %s", bookings[0].DrainedAt, want)
		}
		ids, all = append(ids, id), append(all, bookings)
		h.clock.Advance(time.Minute)
	}
	admittedTokens, admittedCalls := 0, 0
	for i, id := range ids {
		if _, _, refusal := h.try(of(990, tokens)); refusal == nil {
			admittedTokens += 990
		}
		if _, _, refusal := h.try(rpm); refusal == nil {
			admittedCalls++
		}
		h.settle(id, all[i], 10, 0)
	}
	if admittedTokens != 990 || admittedCalls != 1 {
		t.Errorf("%d tokens and %d calls at once, want 990 and 1", admittedTokens, admittedCalls)
	}
	h.wantRemaining(tokens, 10)
	h.wantRemaining(rpm, 0)
}

// testRateRefundLeft voids what is drained in part: the rest comes back, and no more than was booked.
func testRateRefundLeft(t *testing.T, opener Opener) {
	h := opener.open(t)
	tokens := perMinute("tpm", 1000, 999)
	first, ofFirst := h.admit(of(600, tokens))
	second, ofSecond := h.admit(of(400, tokens))
	h.clock.Advance(30 * time.Second) // 500 of the first
	h.void(first, ofFirst)
	h.wantRemaining(tokens, 600)
	h.void(second, ofSecond)
	h.wantRemaining(tokens, 1000)

	third, bookings := h.admit(of(1000, tokens))
	h.clock.Advance(59 * time.Second)
	h.admit(of(900, tokens))
	h.void(third, bookings) // of which a sixtieth was left
	h.wantRemaining(tokens, 1000-900)
	h.clock.Advance(time.Minute)
	none := pool.Booking{Charge: of(500, tokens)} // booked where nothing says when
	h.admit(of(600, tokens))
	h.void("other", []pool.Booking{none})
	h.wantRemaining(tokens, 400)
}

// testRateChanged changes a limit while units drain. What waits is cut to what the new one admits at once, and drains at
// its pace.
func testRateChanged(t *testing.T, opener Opener) {
	h := opener.open(t)
	h.admit(of(6000, perMinute("rpm", 6000, 5999)))
	lower := perMinute("rpm", 10, 9)
	if s := h.read(lower); s.Remaining != 0 || s.Reset != time.Minute {
		t.Errorf("at 10 a minute it stands at %+v, want nothing left and all in 1m", s)
	}
	if r := h.refuse(lower)[0]; r.RetryAfter != 6*time.Second {
		t.Errorf("one fits after %s, want 6s", r.RetryAfter)
	}
	h.clock.Advance(6*time.Second - time.Microsecond)
	h.refuse(lower)
	h.clock.Advance(time.Microsecond)
	h.admit(lower)

	// A higher one finds what waits, and lets it go faster.
	if s := h.read(perMinute("rpm", 120, 119)); s.Remaining != 110 || s.Reset != 5*time.Second {
		t.Errorf("at 120 a minute it stands at %+v, want 110 left and all in 5s", s)
	}
	// What waits is cut only when the limit changes, not for a smaller burst.
	h.admit(of(110, perMinute("rpm", 120, 119)))
	if r := h.refuse(perMinute("rpm", 120, 0))[0]; r.RetryAfter != time.Minute {
		t.Errorf("with 120 waiting and no burst one fits after %s, want 1m", r.RetryAfter)
	}
}

// testRateChangedSettle ends calls that were admitted under another limit than the present one.
func testRateChangedSettle(t *testing.T, opener Opener) {
	h := opener.open(t)
	higher, lower := perMinute("tpm", 6000, 5999), perMinute("tpm", 600, 599)
	id, bookings := h.admit(of(3000, higher))
	h.refuse(of(600, lower)) // 600 are left
	h.clock.Advance(10 * time.Second)
	h.settle(id, bookings, 3300)
	h.wantRemaining(lower, 0)
	// Of 600 and 300 more 100 have drained.
	if s := h.read(lower); s.Reset != 80*time.Second {
		t.Errorf("it stands at %+v, want all in 1m20s", s)
	}
	h.clock.Advance(80 * time.Second)
	h.wantRemaining(lower, 600)
	h.debit("late", of(900, higher))
	h.wantRemaining(higher, 5100)
}

// testRateClockBack turns the clock back by an hour. What is refused then comes when it was told.
func testRateClockBack(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge, other := perMinute("rpm", 60, 0), perMinute("other", 60, 59)
	h.admit(charge)
	h.admit(of(60, other))
	h.clock.Advance(-time.Hour)
	if r := h.refuse(charge)[0]; r.RetryAfter != time.Second {
		t.Fatalf("after a step back it fits in %s, want 1s", r.RetryAfter)
	}
	h.clock.Advance(time.Second)
	h.admit(charge)
	// Whatever was asked then, and refused by whom.
	h.clock.Advance(-time.Hour)
	h.refuse(other, charge)
	h.clock.Advance(time.Second)
	h.admit(charge, other)
	h.wantRemaining(other, 0)
}

func testRateStanding(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := perMinute("rpm", 7, 6)
	for i := range int64(7) {
		want := pool.Standing{Remaining: 6 - i, Reset: time.Duration(roundUp((i+1)*60_000_000, 7)) * time.Microsecond}
		_, bookings := h.admit(charge)
		if got := bookings[0]; !same(got.Standing, want) || got.Charge != charge {
			t.Errorf("number %d was booked as %+v, want %+v", i+1, got, want)
		}
		if got := h.read(of(5, charge)); !same(got, want) { // amounts mean nothing to Read
			t.Errorf("number %d stands at %+v, want %+v", i+1, got, want)
		}
	}
	r := h.refuse(charge)[0]
	if r.Charge != charge || !same(r.Standing, h.read(charge)) {
		t.Errorf("refused with %+v, want where it stands: %+v", r, h.read(charge))
	}
}

// testRateEnormous uses limits at which the numbers that scripts count with are no longer exact by themselves.
func testRateEnormous(t *testing.T, opener Opener) {
	h := opener.open(t)
	const limit = 1 << 50
	tokens := perMinute("tpm", limit, limit-1)
	h.admit(of(limit/2, tokens))
	// Units are counted in thousands of thousands then: rounded, by less than a millionth.
	near := func(got int64, want int64) bool { return got <= want && got > want-limit/1_000_000 }
	if got := h.read(tokens).Remaining; !near(got, limit/2) {
		t.Errorf("%d remain, want %d", got, limit/2)
	}
	h.refuse(of(limit/2+limit/1000, tokens))
	h.clock.Advance(30 * time.Second)
	if got := h.read(tokens).Remaining; !near(got, limit) {
		t.Errorf("%d remain after 30s, want %d", got, limit)
	}
}
