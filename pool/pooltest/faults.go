package pooltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ai-process/ktms/pool"
)

// faults are Meters that err in one way each, for the property to catch.
var faults = []struct {
	name  string
	plant func(m pool.Meter, clock *Clock) pool.Meter
}{
	{"a settle that is repeated books twice", func(m pool.Meter, clock *Clock) pool.Meter {
		settled := map[pool.ID]int{}
		return faulty{Meter: m, settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			settled[id]++
			if settled[id] > 1 {
				id = pool.ID(fmt.Sprint(id, "-", settled[id]))
			}
			return m.Settle(ctx, id, actuals)
		}}
	}},
	{"a settle does not release", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			return m.Settle(ctx, id+"-other", actuals)
		}}
	}},
	{"a settle stops at the reservation", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			actuals = slices.Clone(actuals)
			for i := range actuals {
				actuals[i].Came = min(actuals[i].Came, actuals[i].Amount)
			}
			return m.Settle(ctx, id, actuals)
		}}
	}},
	{"a settle counts on the window of now", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			actuals = slices.Clone(actuals)
			for i, a := range actuals {
				if a.Window != (pool.Window{}) {
					actuals[i].Start, _ = a.Window.Span.At(clock.Now())
				}
			}
			return m.Settle(ctx, id, actuals)
		}}
	}},
	{"a void gives no rate back", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			return m.Settle(ctx, id, slices.DeleteFunc(slices.Clone(actuals), func(a pool.Actual) bool { return a.IsRate() }))
		}}
	}},
	{"a refund gives back what has drained", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			actuals = slices.Clone(actuals)
			for i := range actuals {
				actuals[i].DrainedAt = actuals[i].DrainedAt.AddDate(1, 0, 0)
			}
			return m.Settle(ctx, id, actuals)
		}}
	}},
	{"an expiry frees twice", func(m pool.Meter, clock *Clock) pool.Meter {
		return withEnds(m, clock, func(ctx context.Context, id pool.ID, actuals []pool.Actual, over bool) error {
			actuals = slices.Clone(actuals)
			for i, a := range actuals {
				if over && a.Window != (pool.Window{}) {
					actuals[i].Came -= a.Amount
				}
			}
			return m.Settle(ctx, id, actuals)
		})
	}},
	{"a settle after the expiry is lost", func(m pool.Meter, clock *Clock) pool.Meter {
		return withEnds(m, clock, func(ctx context.Context, id pool.ID, actuals []pool.Actual, over bool) error {
			return m.Settle(ctx, id, slices.DeleteFunc(slices.Clone(actuals), func(a pool.Actual) bool {
				return over && a.Window != pool.Window{}
			}))
		})
	}},
	{"a reservation outlives its lease", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			return m.Admit(ctx, id, ttl+time.Hour, charges)
		}}
	}},
	{"a renewal begins again what has ended", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, renew: func(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error {
			for _, a := range attempts {
				for _, b := range a.Bookings {
					if b.Window != (pool.Window{}) {
						_, _ = m.Admit(ctx, a.ID, ttl, []pool.Charge{b.Charge})
					}
				}
			}
			return m.Renew(ctx, attempts, ttl)
		}}
	}},
	{"a renewal does nothing", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, renew: func(context.Context, []pool.Renewal, time.Duration) error { return nil }}
	}},
	{"an admission checks and does not book", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			bookings, err := m.Admit(ctx, id+"-other", ttl, charges)
			return bookings, errors.Join(err, m.Settle(ctx, id+"-other", pool.Void(bookings)))
		}}
	}},
	{"an admission that is refused books what fits", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			bookings, err := m.Admit(ctx, id, ttl, charges)
			if err != nil {
				for _, c := range charges {
					_, _ = m.Admit(ctx, id, ttl, []pool.Charge{c})
				}
			}
			return bookings, err
		}}
	}},
	{"an admission of nothing fits at the cap", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			bookings, err := m.Admit(ctx, id, ttl, charges)
			if _, refused := errors.AsType[*pool.Refusal](err); refused && !slices.ContainsFunc(charges, func(c pool.Charge) bool { return c.Amount > 0 }) {
				for _, c := range charges {
					standings, err := m.Read(ctx, []pool.Charge{c})
					if err != nil {
						return nil, err
					}
					bookings = append(bookings, pool.Booking{Charge: c, Standing: standings[0]})
				}
				return bookings, nil
			}
			return bookings, err
		}}
	}},
	{"a refusal tells of the first alone", func(m pool.Meter, clock *Clock) pool.Meter {
		return faulty{Meter: m, admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			bookings, err := m.Admit(ctx, id, ttl, charges)
			if refusal, refused := errors.AsType[*pool.Refusal](err); refused {
				refusal.Refused = refusal.Refused[:1]
			}
			return bookings, err
		}}
	}},
	{"a debit is booked twice", func(m pool.Meter, clock *Clock) pool.Meter {
		debited := 0
		return faulty{Meter: m, debit: func(ctx context.Context, id pool.ID, charges []pool.Charge) error {
			debited++
			return m.Debit(ctx, pool.ID(fmt.Sprint(id, "-", debited)), charges)
		}}
	}},
	{"a window does not begin again", stretch},
}

// faulty does some things in another way than the Meter within.
type faulty struct {
	pool.Meter
	admit  func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error)
	renew  func(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error
	settle func(ctx context.Context, id pool.ID, actuals []pool.Actual) error
	debit  func(ctx context.Context, id pool.ID, charges []pool.Charge) error
	read   func(ctx context.Context, charges []pool.Charge) ([]pool.Standing, error)
}

func (f faulty) Admit(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
	if f.admit == nil {
		return f.Meter.Admit(ctx, id, ttl, charges)
	}
	return f.admit(ctx, id, ttl, charges)
}

func (f faulty) Renew(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error {
	if f.renew == nil {
		return f.Meter.Renew(ctx, attempts, ttl)
	}
	return f.renew(ctx, attempts, ttl)
}

func (f faulty) Settle(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
	if f.settle == nil {
		return f.Meter.Settle(ctx, id, actuals)
	}
	return f.settle(ctx, id, actuals)
}

func (f faulty) Debit(ctx context.Context, id pool.ID, charges []pool.Charge) error {
	if f.debit == nil {
		return f.Meter.Debit(ctx, id, charges)
	}
	return f.debit(ctx, id, charges)
}

func (f faulty) Read(ctx context.Context, charges []pool.Charge) ([]pool.Standing, error) {
	if f.read == nil {
		return f.Meter.Read(ctx, charges)
	}
	return f.read(ctx, charges)
}

// withEnds settles in another way, which is told whether the reservation was over.
func withEnds(m pool.Meter, clock *Clock, settle func(ctx context.Context, id pool.ID, actuals []pool.Actual, over bool) error) pool.Meter {
	ends, settled := map[pool.ID]time.Time{}, map[pool.ID]bool{}
	over := func(id pool.ID) bool { return !clock.Now().Before(ends[id]) }
	return faulty{
		Meter: m,
		admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			ends[id] = clock.Now().Add(ttl)
			return m.Admit(ctx, id, ttl, charges)
		},
		renew: func(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error {
			for _, a := range attempts {
				if !over(a.ID) {
					ends[a.ID] = clock.Now().Add(ttl)
				}
			}
			return m.Renew(ctx, attempts, ttl)
		},
		settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			if settled[id] {
				return nil
			}
			settled[id] = true
			return settle(ctx, id, actuals, over(id))
		},
	}
}

// stretch keeps the use of short windows for ten times as long, and lies about when they began.
func stretch(m pool.Meter, clock *Clock) pool.Meter {
	long := func(c pool.Charge) pool.Charge {
		if c.Window.Span != pool.Month {
			c.Window.Span *= 10
		}
		return c
	}
	all := func(charges []pool.Charge) []pool.Charge {
		longer := make([]pool.Charge, 0, len(charges))
		for _, c := range charges {
			longer = append(longer, long(c))
		}
		return longer
	}
	lie := func(s pool.Standing, c pool.Charge) pool.Standing {
		if c.Window != (pool.Window{}) {
			start, end := c.Window.Span.At(clock.Now())
			s.Start, s.Reset = start, end.Sub(clock.Now())
		}
		return s
	}
	return faulty{
		Meter: m,
		admit: func(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
			bookings, err := m.Admit(ctx, id, ttl, all(charges))
			for i, c := range charges[:len(bookings)] {
				bookings[i].Charge, bookings[i].Standing = c, lie(bookings[i].Standing, c)
			}
			if refusal, refused := errors.AsType[*pool.Refusal](err); refused {
				for i, r := range refusal.Refused {
					c := charges[slices.IndexFunc(charges, func(c pool.Charge) bool { return c.Key == r.Key })]
					r.Charge, r.Standing = c, lie(r.Standing, c)
					if c.Window != (pool.Window{}) {
						r.RetryAfter = r.Reset
					}
					refusal.Refused[i] = r
				}
			}
			return bookings, err
		},
		settle: func(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
			actuals = slices.Clone(actuals)
			for i, a := range actuals {
				actuals[i].Charge = long(a.Charge)
				if a.Window != (pool.Window{}) {
					actuals[i].Start, _ = actuals[i].Window.Span.At(a.Start)
				}
			}
			return m.Settle(ctx, id, actuals)
		},
		renew: func(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error {
			longer := make([]pool.Renewal, 0, len(attempts))
			for _, a := range attempts {
				bookings := slices.Clone(a.Bookings)
				for i, b := range bookings {
					bookings[i].Charge = long(b.Charge)
					if b.Window != (pool.Window{}) {
						bookings[i].Start, _ = bookings[i].Window.Span.At(b.Start)
					}
				}
				longer = append(longer, pool.Renewal{ID: a.ID, Bookings: bookings})
			}
			return m.Renew(ctx, longer, ttl)
		},
		debit: func(ctx context.Context, id pool.ID, charges []pool.Charge) error {
			return m.Debit(ctx, id, all(charges))
		},
		read: func(ctx context.Context, charges []pool.Charge) ([]pool.Standing, error) {
			standings, err := m.Read(ctx, all(charges))
			for i, c := range charges[:len(standings)] {
				standings[i] = lie(standings[i], c)
			}
			return standings, err
		},
	}
}
