package pooltest

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

var windowTests = []test{
	{"admit up to the cap", testWindowCap},
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
