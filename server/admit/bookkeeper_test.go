package admit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

// far is a meter that is a way off: whatever it is asked takes so long.
type far struct {
	pool.Meter
	trip time.Duration
}

func (f far) Settle(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
	time.Sleep(f.trip)
	return f.Meter.Settle(ctx, id, actuals)
}

// TestBookkeeper_KeepsUpWithManyCalls: bookings wait for nothing but their own round trip, or they would fall behind
// without an end, and be lost.
func TestBookkeeper_KeepsUpWithManyCalls(t *testing.T) {
	const (
		trip  = 5 * time.Millisecond
		every = 100 * time.Microsecond // 10,000 calls a second
		calls = 10_000
	)
	l := limits{caps: map[string]int64{"key/app/day": pool.MaxAmount}}
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		d.meter = far{d.options.Meter, trip}
		most := int64(0)
		for i := range calls {
			a := d.call(fmt.Sprint("call-", i), someone, l, 10, 10)
			ticket, refused := d.admit(a, model("m"))
			if refused != nil {
				t.Fatal(refused)
			}
			ticket.Settle(used(10, 10))
			a.Close()
			time.Sleep(every)
			most = max(most, d.pending.Load())
		}
		if under := int64(trip/every) + bookingWorkers; most > under {
			t.Errorf("%d bookings were waiting, want at most the %d that are made within a trip", most, under)
		}
	})
}
