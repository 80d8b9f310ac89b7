package pooltest

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

// Bench measures an admission and its settlement together, with 1, 4 and 8 counters, and with several callers. The Meter
// takes its own time.
func Bench(b *testing.B, m pool.Meter) {
	for _, counters := range []int{1, 4, 8} {
		b.Run(fmt.Sprint("counters=", counters), func(b *testing.B) {
			b.ReportAllocs()
			run := rand.Text() // the next run must not find what this one settled
			call := newCall(m, run, counters)
			for n := 0; b.Loop(); n++ {
				call.once(b, pool.ID(run+"-"+strconv.Itoa(n)))
			}
		})
	}
	b.Run("counters=4/parallel", func(b *testing.B) {
		b.ReportAllocs()
		key := rand.Text()
		b.RunParallel(func(p *testing.PB) {
			run := rand.Text()
			call := newCall(m, key, 4)
			for n := 0; p.Next(); n++ {
				call.once(b, pool.ID(run+"-"+strconv.Itoa(n)))
			}
		})
	})
}

// call is one caller, who makes the same call again and again.
type call struct {
	pool.Meter
	charges []pool.Charge
	actuals []pool.Actual
}

// newCall makes charges that are as mixed as a call's: two rates, then windows. They never fill up.
func newCall(m pool.Meter, key string, counters int) *call {
	all := []pool.Charge{
		perMinute("rpm", 10_000_000, 10_000_000),
		of(100, perMinute("tpm", 30_000_000, 30_000_000)),
		of(100, within("key-tokens", pool.MaxAmount, pool.Day)),
		of(1000, within("key-spend-day", pool.MaxAmount, pool.Day)),
		of(1000, within("key-spend-month", pool.MaxAmount, pool.Month)),
		of(100, within("user-tokens", pool.MaxAmount, pool.Day)),
		of(1000, within("user-spend-day", pool.MaxAmount, pool.Day)),
		of(1000, within("team-spend-month", pool.MaxAmount, pool.Month)),
	}[:counters]
	for i := range all {
		all[i].Key = pool.Key(key, all[i].Key)
	}
	return &call{Meter: m, charges: all, actuals: make([]pool.Actual, counters)}
}

func (c *call) once(b *testing.B, id pool.ID) {
	bookings, err := c.Admit(b.Context(), id, time.Minute, c.charges)
	if err != nil {
		b.Fatal(err)
	}
	for i, booking := range bookings {
		c.actuals[i] = pool.Actual{Booking: booking}
		if booking.Window != (pool.Window{}) { // rates get everything back, or they would fill up within seconds
			c.actuals[i].Came = booking.Amount / 2
		}
	}
	if err := c.Settle(b.Context(), id, c.actuals); err != nil {
		b.Fatal(err)
	}
}
