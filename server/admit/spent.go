package admit

import (
	"context"
	"time"

	"github.com/ai-process/ktms/pool"
)

// Window is what a subject spent in one period, in nano-USD.
type Window struct {
	Period string
	// Limit is 0 without a cap; nothing is counted then.
	Limit             int64
	Settled, Reserved int64
	Remaining         int64
	Resets            time.Time
}

// Spent reads where the spend limits of a subject stand, from the counters that refuse calls: one window for each of the
// periods. The error wraps pool.ErrUnavailable.
func (c *Controller) Spent(ctx context.Context, limits Limits, subjectType, subjectID string, periods ...string) ([]Window, error) {
	windows := make([]Window, len(periods))
	var charges []pool.Charge
	for i, period := range periods {
		w := &windows[i]
		w.Period, w.Limit = period, spendCap(limits, subjectType, subjectID, period)
		charge := spendCharge(subjectType, subjectID, period, w.Limit, 0)
		_, w.Resets = charge.Window.Span.At(c.options.Now())
		if w.Limit > 0 {
			charges = append(charges, charge)
		}
	}
	if len(charges) == 0 {
		return windows, nil
	}
	standings, err := c.options.Meter.Read(ctx, charges)
	if err != nil {
		return nil, err
	}
	for i := range windows {
		w := &windows[i]
		if w.Limit == 0 {
			continue
		}
		s := standings[0]
		standings = standings[1:]
		_, w.Resets = charges[0].Window.Span.At(s.Start)
		charges = charges[1:]
		w.Settled, w.Reserved, w.Remaining = s.Settled, s.Reserved, s.Remaining
	}
	return windows, nil
}
