package admit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ai-process/ktms/pool"
)

const (
	// bookingWorkers is how many bookings are on their way at once; the pool sends them together. Each takes a round trip,
	// so that these keep up with 12,800 calls a second where one takes 5 ms.
	bookingWorkers = 64
	// failedWorkers is how many try what has failed again; after an outage they book several thousand a second.
	failedWorkers = 16
	// maxWaiting is how many bookings wait for a pool that is away, about 10 MB of them. What comes on top is lost, and
	// counted: the reservation of such a call ends by itself.
	maxWaiting = 10_000
	// maxBookingAge is how long a booking is tried again, well within the time for which the pool remembers the first try.
	maxBookingAge = pool.SettleMemory * 2 / 3
	// bookAgain is the wait between two tries: the pool does not ask its server more often.
	bookAgain = time.Second
	// drainTimeout is what bookings get at the end of the process.
	drainTimeout = 5 * time.Second
)

// booking is what one attempt came to: corrections of what was admitted, or, where nothing could be admitted because the
// pool was away, debits.
type booking struct {
	id      pool.ID
	actuals []pool.Actual
	debits  []pool.Charge
	// since is when the attempt ended, due when it is worth another try.
	since, due time.Time
}

func (b *booking) to(ctx context.Context, m pool.Meter) error {
	if len(b.debits) > 0 {
		return m.Debit(ctx, b.id, b.debits)
	}
	return m.Settle(ctx, b.id, b.actuals)
}

// bookkeeper books off the path of the calls, and keeps what the pool cannot take at the moment.
type bookkeeper struct {
	meter   pool.Meter
	log     *slog.Logger
	waiting chan booking
	// failed are those that wait for another try, in the order in which they are due.
	failed chan booking
	// pending counts all of them, and those that are being booked.
	pending *atomic.Int64
	// lost counts what was given up; told hears of each.
	lost *atomic.Int64
	told func()
}

func newBookkeeper(meter pool.Meter, log *slog.Logger, told func()) bookkeeper {
	return bookkeeper{meter: meter, log: log, told: told, waiting: make(chan booking, maxWaiting),
		failed: make(chan booking, maxWaiting), pending: new(atomic.Int64), lost: new(atomic.Int64)}
}

// later books soon; it never waits.
func (k *bookkeeper) later(b booking) {
	b.since = time.Now()
	if k.pending.Add(1) > maxWaiting { // so that there always is room in both channels
		k.loses(b, "too many bookings wait for the pool")
		return
	}
	k.waiting <- b
}

// now books before it returns, so that what it frees is there for what comes next. What fails is booked later; false says
// so.
func (k *bookkeeper) now(ctx context.Context, b booking) bool {
	if b.to(ctx, k.meter) != nil {
		k.later(b)
		return false
	}
	return true
}

// book works on what is waiting until ctx ends. What fails waits apart, for a pool that is away, or because the pool
// cannot take this one: nothing waits behind it.
func (k *bookkeeper) book(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-k.waiting:
			k.try(ctx, b)
		}
	}
}

// bookFailed tries what has failed again, until ctx ends.
func (k *bookkeeper) bookFailed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-k.failed:
			if !until(ctx, b.due) {
				k.failed <- b // giveUp counts it
				return
			}
			k.try(ctx, b)
		}
	}
}

// until waits for an instant; false means that ctx ended before it.
func until(ctx context.Context, due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (k *bookkeeper) try(ctx context.Context, b booking) {
	switch {
	case b.to(ctx, k.meter) == nil:
		k.pending.Add(-1)
	case time.Since(b.since) > maxBookingAge:
		k.loses(b, "the pool was away for too long")
	default:
		b.due = time.Now().Add(bookAgain)
		k.failed <- b
	}
}

const atTheEnd = "the process ended before the pool was back"

// giveUp counts what is still waiting when the process ends. Nobody works on it any more.
func (k *bookkeeper) giveUp() {
	for {
		select {
		case b := <-k.waiting:
			k.loses(b, atTheEnd)
		case b := <-k.failed:
			k.loses(b, atTheEnd)
		default:
			if n := k.lost.Load(); n > 0 {
				k.log.Error("calls were not booked in the life of this process", "calls", n)
			}
			return
		}
	}
}

// lossesPerLine keeps an outage from filling the log.
const lossesPerLine = 1000

func (k *bookkeeper) loses(b booking, why string) {
	k.pending.Add(-1)
	k.told()
	if n := k.lost.Add(1); n%lossesPerLine == 1 {
		k.log.Error("a call was not booked: its counters miss what it used", "attempt", string(b.id), "why", why, "so_far", n)
	}
}

// drain returns once nothing is waiting, or when ctx ends.
func (k *bookkeeper) drain(ctx context.Context) {
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for k.pending.Load() > 0 {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
