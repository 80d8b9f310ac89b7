// Package memory keeps the pool within one process: for a single replica without Redis, and as the model that the scripts
// of pool/redis are compared with.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/gcra"
)

// Options are the settings of a Meter.
type Options struct {
	// Now is the clock; nil is time.Now. It is called by one goroutine at a time.
	Now func() time.Time
}

// Meter implements pool.Meter. It is never unavailable.
type Meter struct {
	now func() time.Time

	mu       sync.Mutex
	counters counters
	settled  *once
	debited  *once
}

var _ pool.Meter = (*Meter)(nil)

// New returns a Meter in which nothing is counted.
func New(options Options) *Meter {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Meter{
		now:      options.Now,
		counters: newCounters(),
		settled:  newOnce(pool.SettleMemory),
		debited:  newOnce(pool.DebitMemory),
	}
}

// Admit implements pool.Meter.
func (m *Meter) Admit(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.micros()
	var refused []pool.Refused
	for _, c := range charges {
		if r, fits := m.counters.check(c, now); !fits {
			refused = append(refused, r)
		}
	}
	if refused != nil {
		return nil, &pool.Refusal{Refused: refused}
	}
	bookings := make([]pool.Booking, 0, len(charges))
	for _, c := range charges {
		bookings = append(bookings, m.counters.book(c, id, now, now+ttl.Microseconds()))
	}
	m.counters.sweep(now)
	return bookings, nil
}

// Renew implements pool.Meter.
func (m *Meter) Renew(ctx context.Context, attempts []pool.Renewal, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.micros()
	for _, attempt := range attempts {
		for _, b := range attempt.Bookings {
			m.counters.renew(b, attempt.ID, now, now+ttl.Microseconds())
		}
	}
	return nil
}

// Settle implements pool.Meter.
func (m *Meter) Settle(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.micros()
	if !m.first(id, m.settled, now) {
		return nil
	}
	for _, a := range actuals {
		m.counters.settle(a, id, now)
	}
	m.counters.sweep(now)
	return nil
}

// Debit implements pool.Meter.
func (m *Meter) Debit(ctx context.Context, id pool.ID, charges []pool.Charge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.micros()
	if !m.first(id, m.debited, now) {
		return nil
	}
	for _, c := range charges {
		m.counters.debit(c, now)
	}
	m.counters.sweep(now)
	return nil
}

// Read implements pool.Meter.
func (m *Meter) Read(ctx context.Context, charges []pool.Charge) ([]pool.Standing, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.micros()
	standings := make([]pool.Standing, 0, len(charges))
	for _, c := range charges {
		standings = append(standings, m.counters.read(c, now))
	}
	return standings, nil
}

// first reports whether an id was neither settled nor debited lately, and remembers it.
func (m *Meter) first(id pool.ID, memory *once, now int64) bool {
	if m.settled.holds(id, now) || m.debited.holds(id, now) {
		return false
	}
	memory.add(id, now)
	return true
}

// micros is the clock's time in microseconds since 1970, in which everything is counted.
func (m *Meter) micros() int64 { return m.now().UnixMicro() }

// rateOf is a charge's rate as it is counted.
func rateOf(c pool.Charge) gcra.Rate { return gcra.Of(c.Rate.Limit, c.Rate.Burst, c.Rate.Per) }
