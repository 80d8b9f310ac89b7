package redis

import (
	"fmt"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/gcra"
)

// before reads what a script says of each charge: a backlog, or what is settled and reserved.
type before struct{ numbers []int64 }

func (b *before) next() int64 {
	if len(b.numbers) == 0 {
		return 0
	}
	n := b.numbers[0]
	b.numbers = b.numbers[1:]
	return n
}

// standing is where a counter stood, and its level if it is a rate.
func (b *before) standing(c pool.Charge, now int64) (pool.Standing, gcra.Level) {
	if c.IsRate() {
		rate := rateOf(c)
		level := gcra.Level{At: now, Backlog: b.next(), Limit: rate.Limit}
		return rateStanding(rate, level), level
	}
	return c.Window.Standing(b.next(), b.next(), time.UnixMicro(now)), gcra.Level{}
}

// bookings are the charges that were booked, with what is there after them.
func bookings(charges []pool.Charge, got reply) []pool.Booking {
	booked, numbers := make([]pool.Booking, 0, len(charges)), before{got.before}
	for _, c := range charges {
		b := pool.Booking{Charge: c}
		if c.IsRate() {
			rate := rateOf(c)
			level := gcra.Level{At: got.now, Backlog: numbers.next(), Limit: rate.Limit}.Add(rate.Cost(c.Amount))
			b.Standing, b.DrainedAt = rateStanding(rate, level), time.UnixMicro(level.Drained()).UTC()
		} else {
			b.Standing = c.Window.Standing(numbers.next(), numbers.next()+c.Amount, time.UnixMicro(got.now))
		}
		booked = append(booked, b)
	}
	return booked
}

// refusal says which charges did not fit, by the sums that the script did, too. There is one at least, or the script's
// sums were others.
func refusal(charges []pool.Charge, got reply) error {
	refusal, numbers := &pool.Refusal{}, before{got.before}
	for _, c := range charges {
		s, level := numbers.standing(c, got.now)
		r := pool.Refused{Charge: c, Standing: s}
		if c.IsRate() {
			rate := rateOf(c)
			cost := rate.Cost(c.Amount)
			if level.Fits(rate, cost) {
				continue
			}
			r.RetryAfter, r.Never = level.Wait(rate, cost)
		} else {
			if c.Window.Fits(s.Settled+s.Reserved, c.Amount) {
				continue
			}
			r.RetryAfter, r.Never = s.Reset, c.Window.Never(c.Amount)
		}
		refusal.Refused = append(refusal.Refused, r)
	}
	if len(refusal.Refused) == 0 {
		return fmt.Errorf("%w: admit: %w", pool.ErrUnavailable, errReply)
	}
	return refusal
}

// standings are where the counters stand.
func standings(charges []pool.Charge, got reply) []pool.Standing {
	stand, numbers := make([]pool.Standing, 0, len(charges)), before{got.before}
	for _, c := range charges {
		s, _ := numbers.standing(c, got.now)
		stand = append(stand, s)
	}
	return stand
}

func rateStanding(r gcra.Rate, level gcra.Level) pool.Standing {
	return pool.Standing{Remaining: level.Remaining(r), Reset: level.Reset(r)}
}

// windowAt is the window that an instant falls into, in microseconds.
func windowAt(c pool.Charge, micros int64) (start, end int64) {
	from, to := c.Window.Span.At(time.UnixMicro(micros))
	return from.UnixMicro(), to.UnixMicro()
}

// rateOf is a charge's rate as it is counted.
func rateOf(c pool.Charge) gcra.Rate { return gcra.Of(c.Rate.Limit, c.Rate.Burst, c.Rate.Per) }
