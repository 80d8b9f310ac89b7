package pooltest

import (
	"math/big"
	"time"

	"github.com/ai-process/ktms/pool"
)

// ledger is what the property wrote down itself of everything that happened. It keeps every entry and adds them all up
// each time, so that it has no sums which could go wrong in the way of a Meter's.
type ledger struct {
	clock    *Clock
	attempts []*attempt
	debits   []debit
	buckets  map[string]*bucket
}

// attempt is what was admitted under one id.
type attempt struct {
	id      pool.ID
	entries []*entry
	// gone: its replica crashed, and nobody will ever renew or settle it.
	gone bool
	// ended is when it was settled or voided; zero until then.
	ended time.Time
}

// entry is one booking of an attempt.
type entry struct {
	pool.Booking
	at time.Time
	// leased is when its reservation ends.
	leased time.Time
	// drained is when all had drained from a rate that waited right after it.
	drained time.Time
	// settled: it came to something, though it may be nothing.
	settled bool
	came    int64
	// late: the reservation was over by then.
	late bool
}

type debit struct {
	id     pool.ID
	charge pool.Charge
	at     time.Time
}

func (e *entry) live(now time.Time) bool { return !e.settled && now.Before(e.leased) }

// in reports whether it was booked on the window of a charge that begins with start.
func (e *entry) in(charge pool.Charge, start time.Time) bool {
	return e.Key == charge.Key && e.Start.Equal(start)
}

// use is what a window is used for, by adding up all that was ever written down.
func (l *ledger) use(charge pool.Charge, start time.Time, now time.Time) (settled, reserved int64) {
	for _, a := range l.attempts {
		for _, e := range a.entries {
			switch {
			case !e.in(charge, start):
			case e.settled:
				settled += e.came
			case e.live(now):
				reserved += e.Amount
			}
		}
	}
	return settled + l.debited(charge, start), reserved
}

func (l *ledger) debited(charge pool.Charge, start time.Time) (sum int64) {
	for _, d := range l.debits {
		if began, _ := charge.Window.Span.At(d.at); d.charge.Key == charge.Key && began.Equal(start) {
			sum += d.charge.Amount
		}
	}
	return sum
}

// bound is the most that a window may ever hold: its cap, what calls came to beyond their reservations, and what nobody
// asked the cap for.
func (l *ledger) bound(charge pool.Charge, start time.Time) int64 {
	bound := charge.Window.Limit + charge.Window.Grace + l.debited(charge, start)
	for _, a := range l.attempts {
		for _, e := range a.entries {
			switch {
			case !e.settled || !e.in(charge, start):
			case e.late:
				bound += e.came
			default:
				bound += max(e.came-e.Amount, 0)
			}
		}
	}
	return bound
}

// stands is where a counter stands now.
func (l *ledger) stands(charge pool.Charge) pool.Standing {
	now := l.clock.Now()
	if charge.Window == (pool.Window{}) {
		b := l.bucket(charge)
		return pool.Standing{Remaining: b.remaining(), Reset: b.time(b.waiting)}
	}
	start, end := charge.Window.Span.At(now)
	settled, reserved := l.use(charge, start, now)
	return pool.Standing{
		Settled: settled, Reserved: reserved, Remaining: max(charge.Window.Limit-settled-reserved, 0),
		Reset: end.Sub(now), Start: start,
	}
}

// refusal is how a charge has to be refused now; fits when it has not.
func (l *ledger) refusal(charge pool.Charge) (want pool.Refused, fits bool) {
	want = pool.Refused{Charge: charge, Standing: l.stands(charge)}
	least := max(charge.Amount, 1)
	if charge.Window == (pool.Window{}) {
		b := l.bucket(charge)
		if want.Never = least > b.capacity(); !want.Never {
			over := new(big.Rat).Add(b.waiting, whole(least-b.capacity()))
			want.RetryAfter = b.time(over)
			fits = over.Sign() <= 0
		}
		return want, fits
	}
	ceiling := charge.Window.Limit + charge.Window.Grace
	want.Never, want.RetryAfter = least > ceiling, want.Reset
	return want, want.Settled+want.Reserved+least <= ceiling
}

// admitted writes an attempt down.
func (l *ledger) admitted(id pool.ID, ttl time.Duration, bookings []pool.Booking) {
	a := &attempt{id: id}
	for _, b := range bookings {
		now := l.clock.Now()
		e := &entry{Booking: b, at: now, leased: now.Add(ttl)}
		if b.Window == (pool.Window{}) {
			bucket := l.bucket(b.Charge)
			bucket.add(b.Amount)
			e.drained = now.Add(bucket.time(bucket.waiting))
		}
		a.entries = append(a.entries, e)
	}
	l.attempts = append(l.attempts, a)
}

// settled writes down what an entry came to.
func (l *ledger) settled(e *entry, came int64) {
	if e.Window == (pool.Window{}) {
		bucket := l.bucket(e.Charge)
		change, left := whole(came-e.Amount), bucket.drain(e.drained.Sub(bucket.at))
		if left.Neg(left).Cmp(change) > 0 {
			change = left
		}
		bucket.change(change)
	}
	e.late = !e.live(l.clock.Now())
	e.settled, e.came = true, came
}

func (l *ledger) debit(id pool.ID, charges []pool.Charge) {
	for _, c := range charges {
		if c.Window == (pool.Window{}) {
			l.bucket(c).add(c.Amount)
		}
		l.debits = append(l.debits, debit{id: id, charge: c, at: l.clock.Now()})
	}
}

// bucket is a rate in fractions: how many units wait to drain.
type bucket struct {
	rate    pool.Rate
	waiting *big.Rat
	at      time.Time
}

// bucket is a rate's bucket as it is now.
func (l *ledger) bucket(charge pool.Charge) *bucket {
	b, now := l.buckets[charge.Key], l.clock.Now()
	if b == nil {
		b = &bucket{rate: charge.Rate, waiting: new(big.Rat), at: now}
		l.buckets[charge.Key] = b
	}
	b.waiting = atLeast0(b.waiting.Sub(b.waiting, b.drain(now.Sub(b.at))))
	b.at = now
	return b
}

// surge is the most that a rate ever let through at once, by what calls came to in the end at the instants at which they
// were admitted. What they came to beyond their bookings is left out, because nobody asked the rate for it.
func (l *ledger) surge(charge pool.Charge) *big.Rat {
	b, most := &bucket{rate: charge.Rate, waiting: new(big.Rat)}, new(big.Rat)
	for _, a := range l.attempts {
		for _, e := range a.entries {
			if e.Key != charge.Key {
				continue
			}
			b.waiting = atLeast0(b.waiting.Sub(b.waiting, b.drain(e.at.Sub(b.at))))
			b.at = e.at
			used := e.Amount
			if e.settled {
				used = min(e.came, e.Amount)
			}
			if b.add(used); b.waiting.Cmp(most) > 0 {
				most.Set(b.waiting)
			}
		}
	}
	return most
}

// drain is how much drains in a time.
func (b *bucket) drain(d time.Duration) *big.Rat {
	return atLeast0(new(big.Rat).Mul(big.NewRat(d.Microseconds(), b.rate.Per.Microseconds()), whole(b.rate.Limit)))
}

func (b *bucket) capacity() int64 { return b.rate.Burst + 1 }

func (b *bucket) add(units int64) { b.change(whole(units)) }

func (b *bucket) change(units *big.Rat) { b.waiting = atLeast0(b.waiting.Add(b.waiting, units)) }

func (b *bucket) remaining() int64 {
	left := atLeast0(new(big.Rat).Sub(whole(b.capacity()), b.waiting))
	return new(big.Int).Quo(left.Num(), left.Denom()).Int64()
}

// time is how long units take to drain, in whole microseconds, rounded up.
func (b *bucket) time(units *big.Rat) time.Duration {
	micros := new(big.Rat).Mul(units, big.NewRat(b.rate.Per.Microseconds(), b.rate.Limit))
	up := new(big.Int).Add(micros.Num(), new(big.Int).Sub(micros.Denom(), big.NewInt(1)))
	return time.Duration(up.Div(up, micros.Denom()).Int64()) * time.Microsecond
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func atLeast0(r *big.Rat) *big.Rat {
	if r.Sign() < 0 {
		return new(big.Rat)
	}
	return r
}
