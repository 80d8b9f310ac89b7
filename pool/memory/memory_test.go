package memory

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestSuite(t *testing.T) {
	t.Parallel()
	pooltest.Run(t, pooltest.Opener{Fresh: func(_ *testing.T, clock *pooltest.Clock) pool.Meter {
		return New(Options{Now: clock.Now})
	}})
}

// FuzzMoney looks for a sequence that breaks the property, beyond those that the suite runs.
func FuzzMoney(f *testing.F) {
	f.Add(int64(1))
	f.Fuzz(func(t *testing.T, seed int64) {
		clock := pooltest.NewClock(noon)
		if err := pooltest.Property(t.Context(), seed, New(Options{Now: clock.Now}), clock); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkMeter(b *testing.B) { pooltest.Bench(b, New(Options{})) }

func TestOwnClock(t *testing.T) {
	t.Parallel()
	m, before := New(Options{}), time.Now()
	standings, err := m.Read(t.Context(), []pool.Charge{{Key: "day", Window: pool.Window{Limit: 1, Span: pool.Day}}})
	if err != nil {
		t.Fatal(err)
	}
	if start, _ := pool.Day.At(before); standings[0].Start.Before(start) {
		t.Errorf("it is %s, but the day began %s", before, standings[0].Start)
	}
}

// TestForgetsSettled pins how long an id is remembered, which a pool with a clock of its own cannot be asked.
func TestForgetsSettled(t *testing.T) {
	t.Parallel()
	clock := pooltest.NewClock(noon.Truncate(24 * time.Hour))
	m := New(Options{Now: clock.Now})
	charge := pool.Charge{Key: "month", Amount: 1, Window: pool.Window{Limit: 1000, Span: pool.Month}}
	use := func(want int64) {
		t.Helper()
		if standings, err := m.Read(t.Context(), []pool.Charge{charge}); err != nil || standings[0].Settled != want {
			t.Errorf("%s: %+v settled, want %d: %v", clock.Now(), standings, want, err)
		}
	}
	bookings, err := m.Admit(t.Context(), "call", time.Minute, []pool.Charge{charge})
	if err != nil {
		t.Fatal(err)
	}
	settle := func(amount int64) {
		_ = m.Settle(t.Context(), "call", []pool.Actual{{Booking: bookings[0], Came: amount}})
	}
	debit := func() { _ = m.Debit(t.Context(), "batch", []pool.Charge{charge}) }
	settle(10)
	debit()
	use(11)
	clock.Advance(pool.SettleMemory - time.Microsecond)
	settle(10)
	use(11)
	clock.Advance(time.Microsecond)
	settle(100)
	use(111)
	clock.Advance(pool.DebitMemory - pool.SettleMemory - time.Microsecond)
	debit()
	use(111)
	clock.Advance(time.Microsecond)
	debit()
	use(112)
}
