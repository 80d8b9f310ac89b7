package redis

import (
	"context"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/gcra"
)

// renewAtOnce is how many leases one script renews: nobody else is served meanwhile, and each takes a few microseconds.
const renewAtOnce = 500

// The words of the scripts.
const (
	wordRate   = "r"
	wordWindow = "w"
	// anyWindow stands for the start of a window that need not be the present one.
	anyWindow = -1
)

// Meter implements pool.Meter.
type Meter struct{ client *Client }

var _ pool.Meter = (*Meter)(nil)

// Meter counts in this Redis.
func (c *Client) Meter() *Meter { return &Meter{client: c} }

// Admit implements pool.Meter.
func (m *Meter) Admit(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(charges) == 0 {
		return []pool.Booking{}, nil
	}
	c := m.client
	got, err := c.run(ctx, "admit", c.scripts.admit, func(r *request, now int64) {
		c.clock.write(r, now)
		r.numbers(pool.WindowMemory.Microseconds())
		r.word(string(id))
		r.numbers(ttl.Microseconds())
		for _, charge := range charges {
			if charge.IsRate() {
				rate := rateOf(charge)
				cost := rate.Cost(charge.Amount)
				r.rate(charge.Key)
				r.word(wordRate)
				r.numbers(rate.Limit, rate.Full(), rate.Full()-max(cost, rate.Period), cost)
				continue
			}
			start, end := windowAt(charge, now)
			r.window(charge.Key, start)
			r.word(wordWindow)
			r.numbers(start, end, charge.Window.Ceiling(), charge.Amount)
		}
	})
	if err != nil {
		return nil, err
	}
	if got.outcome == outcomeRefused {
		return nil, refusal(charges, got)
	}
	return bookings(charges, got), nil
}

// Renew implements pool.Meter.
func (m *Meter) Renew(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	type lease struct {
		id      pool.ID
		booking pool.Booking
	}
	var leases []lease
	for _, attempt := range attempts {
		for _, b := range attempt.Bookings {
			if !b.IsRate() && b.Amount > 0 {
				leases = append(leases, lease{attempt.ID, b})
			}
		}
	}
	c := m.client
	for len(leases) > 0 {
		some := leases[:min(len(leases), renewAtOnce)]
		leases = leases[len(some):]
		_, err := c.run(ctx, "renew", c.scripts.renew, func(r *request, now int64) {
			c.clock.write(r, now)
			r.numbers(ttl.Microseconds())
			for _, l := range some {
				r.window(l.booking.Key, l.booking.Start.UnixMicro())
				r.lease(l.booking.Amount, l.id)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Settle implements pool.Meter.
func (m *Meter) Settle(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
	c := m.client
	_, err := c.run(ctx, "settle", c.scripts.settle, func(r *request, now int64) {
		c.writeOnce(r, now, id, pool.SettleMemory)
		for _, a := range actuals {
			if a.IsRate() {
				rate := rateOf(a.Charge)
				r.correct(a.Key, rate, rate.Correction(a.Amount, a.Came), a.DrainedAt.UnixMicro())
				continue
			}
			_, end := windowAt(a.Charge, a.Start.UnixMicro())
			r.window(a.Key, a.Start.UnixMicro())
			r.word(wordWindow)
			r.numbers(anyWindow, end, a.Amount, a.Came)
		}
	})
	return err
}

// Debit implements pool.Meter.
func (m *Meter) Debit(ctx context.Context, id pool.ID, charges []pool.Charge) error {
	c := m.client
	_, err := c.run(ctx, "debit", c.scripts.settle, func(r *request, now int64) {
		c.writeOnce(r, now, id, pool.DebitMemory)
		for _, charge := range charges {
			if charge.IsRate() {
				rate := rateOf(charge)
				r.correct(charge.Key, rate, rate.Correction(0, charge.Amount), 0)
				continue
			}
			start, end := windowAt(charge, now)
			r.window(charge.Key, start)
			r.word(wordWindow)
			r.numbers(start, end, 0, charge.Amount)
		}
	})
	return err
}

// Read implements pool.Meter.
func (m *Meter) Read(ctx context.Context, charges []pool.Charge) ([]pool.Standing, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(charges) == 0 {
		return []pool.Standing{}, nil
	}
	c := m.client
	got, err := c.run(ctx, "read", c.scripts.read, func(r *request, now int64) {
		c.clock.write(r, now)
		for _, charge := range charges {
			if charge.IsRate() {
				r.rate(charge.Key)
				r.word(wordRate)
				rate := rateOf(charge)
				r.numbers(rate.Limit, rate.Full())
				continue
			}
			start, end := windowAt(charge, now)
			r.window(charge.Key, start)
			r.word(wordWindow)
			r.numbers(start, end)
		}
	})
	if err != nil {
		return nil, err
	}
	return standings(charges, got), nil
}

// writeOnce begins what settle.lua is asked.
func (c *Client) writeOnce(r *request, now int64, id pool.ID, memory time.Duration) {
	c.clock.write(r, now)
	r.numbers(pool.WindowMemory.Microseconds())
	r.word(string(id))
	r.numbers(memory.Microseconds())
	r.done(id)
}

// correct asks for a change of a rate's backlog, unless it is none.
func (r *request) correct(key string, rate gcra.Rate, change, drained int64) {
	if change != 0 {
		r.rate(key)
		r.word(wordRate)
		r.numbers(rate.Limit, change, drained)
	}
}
