package pooltest

import (
	"math"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

var windowTests = []test{
	{"admit up to the cap", testWindowCap},
	{"admit into the grace", testWindowGrace},
	{"refuse nothing when one would fit", testWindowZero},
	{"count to the last unit", testWindowLarge},
	{"stop where counting ends", testWindowFull},
	{"begin again every five seconds", testWindowHammered},
	{"begin again at midnight", testWindowDay},
	{"begin again with the month", testWindowMonth},
	{"keep what belongs to them", testWindowLateSettle},
	{"are kept for a while", testWindowMemory},
	{"follow a new limit", testWindowChanged},
	{"are told apart by their keys", testWindowKeys},
}

func testWindowCap(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Day)
	_, bookings := h.admit(of(60, charge))
	start := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	want := pool.Standing{Reserved: 60, Remaining: 40, Reset: start.Add(24 * time.Hour).Sub(noon), Start: start}
	if got := bookings[0]; !same(got.Standing, want) || got.Charge != of(60, charge) {
		t.Errorf("booked as %+v, want %+v", got, want)
	}
	if r := h.refuse(of(41, charge))[0]; !same(r.Standing, want) || r.RetryAfter != want.Reset || r.Never || r.Charge != of(41, charge) {
		t.Errorf("41 of 40 were refused with %+v, want %+v and the window's end", r, want)
	}
	if r := h.refuse(of(101, charge))[0]; !r.Never || r.RetryAfter != want.Reset {
		t.Errorf("101 of 100 were refused with %+v, want never", r)
	}
	h.admit(of(40, charge))
	h.refuse(of(1, charge))
	h.wantUse(charge, 0, 100)
}

func testWindowGrace(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("budget", 100, pool.Day)
	charge.Window.Grace = 10
	if r := h.refuse(of(111, charge))[0]; !r.Never {
		t.Errorf("111 of 100 and 10 were refused with %+v, want never", r)
	}
	h.admit(of(95, charge))
	h.wantRemaining(charge, 5)
	h.admit(of(10, charge))
	h.wantRemaining(charge, 0)
	if r := h.refuse(of(6, charge))[0]; r.Never || r.Remaining != 0 || r.Reserved != 105 {
		t.Errorf("6 of 5 were refused with %+v", r)
	}
	h.admit(of(0, charge))
	h.admit(of(5, charge))
	h.refuse(of(0, charge))
}

func testWindowZero(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 3, pool.Day)
	nothing := of(0, charge)
	for range 5 {
		if _, bookings := h.admit(nothing); bookings[0].Remaining != 3 || bookings[0].Reserved != 0 {
			t.Fatalf("nothing was booked, and it stands at %+v", bookings[0])
		}
	}
	h.admit(of(2, charge))
	free, bookings := h.admit(nothing)
	h.admit(of(1, charge))
	if r := h.refuse(nothing)[0]; r.Never || r.RetryAfter != r.Reset {
		t.Errorf("nothing at the cap was refused with %+v, want it at the window's end", r)
	}
	h.settle(free, bookings, 7) // it was not free after all
	h.wantUse(charge, 7, 3)
	if r := h.refuse(of(0, within("closed", 0, pool.Day)))[0]; !r.Never {
		t.Errorf("nothing under a cap of 0 was refused with %+v, want never", r)
	}
}

func testWindowLarge(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", pool.MaxAmount, pool.Day)
	h.admit(of(pool.MaxAmount-1, charge))
	h.wantRemaining(charge, 1)
	h.refuse(of(2, charge))
	h.admit(of(1, charge))
	h.refuse(of(0, charge))
	h.wantUse(charge, 0, pool.MaxAmount)

	unlimited := within("unlimited", math.MaxInt64, pool.Day)
	unlimited.Window.Grace = math.MaxInt64
	h.admit(of(1, unlimited))
	if r := h.refuse(of(pool.MaxAmount, unlimited))[0]; r.Never || r.Remaining != pool.MaxAmount-1 {
		t.Errorf("more than is counted was refused with %+v", r)
	}
	h.admit(of(pool.MaxAmount-1, unlimited))
	h.refuse(of(0, unlimited))
	h.wantUse(unlimited, 0, pool.MaxAmount)
}

// testWindowFull books more than is counted, which stops there.
func testWindowFull(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", pool.MaxAmount, pool.Day)
	id, bookings := h.admit(of(5, charge))
	h.debit("first", of(pool.MaxAmount-3, charge))
	h.settle(id, bookings, 7)
	h.wantUse(charge, pool.MaxAmount, 0)
	for _, id := range []pool.ID{"second", "third"} {
		h.debit(id, of(pool.MaxAmount, charge))
	}
	h.wantUse(charge, pool.MaxAmount, 0)
	h.wantRemaining(charge, 0)
	h.refuse(charge)
}

// testWindowHammered calls ten times a second, refused calls included, across a dozen edges.
func testWindowHammered(t *testing.T, opener Opener) {
	const span, most = 5 * time.Second, 3
	h := opener.open(t)
	charge := within("cap", most, pool.Span(span))
	edge := noon.Truncate(span).Add(span)
	for range 12 {
		admitted := 0
		for h.clock.Now().Before(edge) {
			id, bookings, refusal := h.try(charge)
			left := edge.Sub(h.clock.Now())
			switch {
			case refusal == nil:
				admitted++
				if admitted == 2 { // the others stay in flight beyond the edge
					h.settle(id, bookings, 1)
				}
			case admitted < most:
				t.Fatalf("%s: refused after %d, want %d", h.clock.Now(), admitted, most)
			case refusal.Refused[0].RetryAfter != left:
				t.Fatalf("%s: refused for %s, want %s", h.clock.Now(), refusal.Refused[0].RetryAfter, left)
			}
			h.clock.Advance(100 * time.Millisecond)
		}
		if admitted != most {
			t.Fatalf("%d admitted before %s, want %d", admitted, edge, most)
		}
		h.clock.Set(edge.Add(-time.Microsecond))
		if r := h.refuse(charge)[0]; r.RetryAfter != time.Microsecond {
			t.Fatalf("a microsecond before the edge: refused for %s", r.RetryAfter)
		}
		h.clock.Set(edge)
		if s := h.read(charge); s.Settled != 0 || s.Reserved != 0 || s.Reset != span || !s.Start.Equal(edge) {
			t.Fatalf("at the edge it stands at %+v, want it empty for %s", s, span)
		}
		edge = edge.Add(span)
	}
}

func testWindowDay(t *testing.T, opener Opener) {
	// It is the 5th already where the clock hangs.
	h := opener.openAt(t, time.Date(2026, 5, 5, 1, 59, 59, 999_999_000, time.FixedZone("CEST", 2*60*60)))
	charge := within("day", 1, pool.Day)
	h.admit(charge)
	if r := h.refuse(charge)[0]; r.RetryAfter != time.Microsecond || !r.Start.Equal(time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("refused with %+v, want the 4th for another microsecond", r)
	}
	h.clock.Advance(time.Microsecond)
	_, bookings := h.admit(charge)
	if s := bookings[0]; s.Reset != 24*time.Hour || !s.Start.Equal(time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("booked at %+v, want the whole 5th", s)
	}
}

func testWindowMonth(t *testing.T, opener Opener) {
	for _, next := range []struct {
		start time.Time
		days  int
	}{
		{time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), 28},
		{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), 31},
		{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), 31},
		{time.Date(2028, 2, 1, 0, 0, 0, 0, time.UTC), 29},
		{time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC), 31},
		{time.Date(2100, 2, 1, 0, 0, 0, 0, time.UTC), 28},
	} {
		h := opener.openAt(t, next.start.Add(-time.Microsecond))
		charge := within("month", 1, pool.Month)
		h.admit(charge)
		if r := h.refuse(charge)[0]; r.RetryAfter != time.Microsecond || !r.Start.Equal(next.start.AddDate(0, -1, 0)) {
			t.Errorf("before %s: refused with %+v, want the month before for a microsecond", next.start, r)
		}
		h.clock.Advance(time.Microsecond)
		id, bookings := h.admit(charge)
		if s := bookings[0]; s.Reset != time.Duration(next.days)*24*time.Hour || !s.Start.Equal(next.start) {
			t.Errorf("%s: booked at %+v, want %d days", next.start, s, next.days)
		}
		h.settle(id, bookings, 1)
		h.clock.Set(next.start.AddDate(0, 0, next.days).Add(-time.Microsecond))
		h.refuse(charge)
		h.clock.Advance(time.Microsecond)
		h.admit(charge)
	}
}

// testWindowLateSettle settles after the edge, and turns the clock back to look at the window that is over.
func testWindowLateSettle(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Span(5*time.Second))
	id, bookings := h.admit(of(10, charge))
	h.clock.Advance(5 * time.Second)
	h.admit(of(20, charge))
	h.settle(id, bookings, 15)
	h.wantUse(charge, 0, 20)
	h.clock.Advance(-5 * time.Second)
	h.wantUse(charge, 15, 0)
}

func testWindowMemory(t *testing.T, opener Opener) {
	h := opener.open(t)
	charge := within("cap", 100, pool.Span(5*time.Second))
	early, bookings := h.admit(of(10, charge))
	late, _ := h.admit(of(10, charge))
	began := h.clock.Now()
	end := bookings[0].Start.Add(5 * time.Second)

	h.clock.Set(end.Add(pool.WindowMemory - time.Microsecond))
	h.settle(early, bookings, 15)
	h.clock.Set(began)
	if s := h.read(charge); s.Settled != 15 {
		t.Errorf("what was settled in time left %+v, want 15 settled", s)
	}
	h.clock.Set(end.Add(pool.WindowMemory))
	h.settle(late, bookings, 15)
	h.wantUse(charge, 0, 0)
	h.clock.Set(began)
	if s := h.read(charge); s.Settled > 15 {
		t.Errorf("what was settled too late left %+v, want no more than 15 settled", s)
	}
}

func testWindowChanged(t *testing.T, opener Opener) {
	h := opener.open(t)
	id, bookings := h.admit(of(50, within("cap", 100, pool.Day)))
	lower := within("cap", 40, pool.Day)
	if s := h.read(lower); s.Remaining != 0 || s.Reserved != 50 {
		t.Errorf("under a lower cap it stands at %+v, want 50 reserved and nothing left", s)
	}
	h.refuse(of(0, lower))
	h.settle(id, bookings, 30)
	h.admit(of(10, lower))
	h.refuse(lower)
	h.admit(of(60, within("cap", 100, pool.Day)))
}

func testWindowKeys(t *testing.T, opener Opener) {
	h := opener.open(t)
	for _, key := range []string{pool.Key("a", "b"), pool.Key("a:b"), pool.Key("a b"), pool.Key("a"), pool.Key("a", ""), pool.Key("ä{}", "\x00")} {
		h.admit(within(key, 1, pool.Day))
		h.refuse(within(key, 1, pool.Day))
		h.admit(perMinute(pool.Key(key, "rate"), 1, 0))
	}
}
