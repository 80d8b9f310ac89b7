package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// TestStaysSmall makes four calls a second for three hours, each of a user of its own, of which every other one crashes.
func TestStaysSmall(t *testing.T) {
	t.Parallel()
	const step, calls, lease = 250 * time.Millisecond, 3 * 60 * 60 * 4, time.Minute
	clock := pooltest.NewClock(noon)
	m := New(Options{Now: clock.Now})
	everybody := pool.Window{Limit: 1 << 40, Span: pool.Month}
	for i := range calls {
		user := strconv.Itoa(i)
		bookings, err := m.Admit(t.Context(), pool.ID(user), lease, []pool.Charge{
			{Key: pool.Key(user, "rate"), Amount: 1, Rate: pool.Rate{Limit: 1, Per: time.Minute}},
			{Key: pool.Key(user, "window"), Amount: 1, Window: pool.Window{Limit: 1, Span: pool.Span(5 * time.Second)}},
			{Key: "everybody", Amount: 1, Window: everybody},
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := m.Settle(t.Context(), pool.ID(user), pool.Void(bookings[2:])); err != nil {
				t.Fatal(err)
			}
		}
		clock.Advance(step)
	}
	// What has to be there: a minute of rates, an hour and five seconds of windows, a quarter of an hour of ids, and a
	// minute of leases. Twice as many counters may be there until the next sweep.
	perSecond := int(time.Second / step)
	counters := perSecond * (60 + 3605)
	if got := len(m.counters.rates) + len(m.counters.windows); got < counters-perSecond || got > 2*counters+perSecond {
		t.Errorf("%d counters are kept, want from %d to %d", got, counters, 2*counters)
	}
	ids := int(pool.SettleMemory/step) / 2
	if got := len(m.settled.until); got < ids-1 || got > ids+1 || len(m.settled.order) != got {
		t.Errorf("%d and %d ids are kept, want %d", got, len(m.settled.order), ids)
	}
	for name, w := range m.counters.windows {
		if most := int(lease/step)/2 + 1; name.key == "everybody" && len(w.leases) > most {
			t.Errorf("%d leases are kept, want at most %d", len(w.leases), most)
		}
	}
}

// TestSweepsLeases: a window that nobody looks at any more keeps no leases.
func TestSweepsLeases(t *testing.T) {
	t.Parallel()
	clock := pooltest.NewClock(noon)
	m := New(Options{Now: clock.Now})
	admit := func(key string) {
		charge := pool.Charge{Key: key, Amount: 1, Window: pool.Window{Limit: 1, Span: pool.Month}}
		if _, err := m.Admit(t.Context(), pool.ID("of-"+key), time.Second, []pool.Charge{charge}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sweepFrom - 1 {
		admit(strconv.Itoa(i))
	}
	clock.Advance(time.Second)
	admit("last")
	leases := 0
	for _, w := range m.counters.windows {
		leases += len(w.leases)
	}
	if leases != 1 || len(m.counters.windows) != sweepFrom {
		t.Errorf("%d windows keep %d leases, want %d and 1", len(m.counters.windows), leases, sweepFrom)
	}
}

// TestSweepsSeldom: where everything is needed, looking for what is not costs little.
func TestSweepsSeldom(t *testing.T) {
	t.Parallel()
	m := New(Options{Now: func() time.Time { return noon }})
	sweeps, at := 0, m.counters.sweepAt
	for i := range 20_000 {
		charge := pool.Charge{Key: strconv.Itoa(i), Amount: 1, Window: pool.Window{Limit: 1, Span: pool.Month}}
		if _, err := m.Admit(t.Context(), pool.ID(charge.Key), time.Minute, []pool.Charge{charge}); err != nil {
			t.Fatal(err)
		}
		if m.counters.sweepAt != at {
			sweeps, at = sweeps+1, m.counters.sweepAt
		}
	}
	if len(m.counters.windows) != 20_000 || sweeps > 5 || at < 20_000 {
		t.Errorf("%d windows were swept %d times, next at %d, want 20000, at most 5 and later", len(m.counters.windows), sweeps, at)
	}
}

// TestSweepsDrained: a rate goes when it is drained, and not before.
func TestSweepsDrained(t *testing.T) {
	t.Parallel()
	clock := pooltest.NewClock(noon)
	m := New(Options{Now: clock.Now})
	charge := pool.Charge{Key: "rate", Amount: 2, Rate: pool.Rate{Limit: 7, Per: time.Minute, Burst: 6}}
	if _, err := m.Admit(t.Context(), "call", time.Minute, []pool.Charge{charge}); err != nil {
		t.Fatal(err)
	}
	const drains = 17_142_858 * time.Microsecond // two sevenths of a minute, rounded up
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{drains - time.Microsecond, 1}, {drains, 0}} {
		clock.Set(noon.Add(c.after))
		m.counters.sweepAt = 0
		m.counters.sweep(m.micros())
		if got := len(m.counters.rates); got != c.want {
			t.Errorf("after %s %d rates are kept, want %d", c.after, got, c.want)
		}
	}
}

// TestSweepsAfterAll: counters are begun by settlements and debits, too.
func TestSweepsAfterAll(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(m *Meter, id pool.ID, charge pool.Charge, start time.Time) error{
		"settle": func(m *Meter, id pool.ID, charge pool.Charge, start time.Time) error {
			return m.Settle(t.Context(), id, []pool.Actual{{Booking: pool.Booking{Charge: charge, Standing: pool.Standing{Start: start}}, Came: 1}})
		},
		"debit": func(m *Meter, id pool.ID, charge pool.Charge, _ time.Time) error {
			return m.Debit(t.Context(), id, []pool.Charge{charge})
		},
	} {
		clock := pooltest.NewClock(noon)
		m := New(Options{Now: clock.Now})
		charge := pool.Charge{Key: "window", Amount: 1, Window: pool.Window{Limit: 1, Span: pool.Span(10 * time.Second)}}
		for i := range 3 * sweepFrom {
			if err := begin(m, pool.ID(strconv.Itoa(i)), charge, clock.Now()); err != nil {
				t.Fatal(err)
			}
			clock.Advance(10 * time.Second)
		}
		if got := len(m.counters.windows); got > sweepFrom {
			t.Errorf("%s: %d windows are kept, want at most %d", name, got, sweepFrom)
		}
	}
}
