package pooltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ai-process/ktms/pool"
)

// steps is how long a sequence is.
const steps = 100

// Property leads a Meter through one random sequence of admissions, settlements, renewals, crashes and the like, and
// returns the first thing that is not as it has to be:
//
//   - What a window holds, settled and reserved, is never more than its cap, plus what calls came to beyond their
//     reservations, plus what was settled after its reservation had ended, plus debits.
//   - What a rate lets through, by what calls came to in the end, is never more than what drains and twice what goes at
//     once: what is given back has not drained yet, and makes room for as much again at most.
//   - Nothing is negative.
//   - Each attempt ends in one way: settled once, or void, or lost with its reservation.
//   - Every counter stands where the property's own ledger says, and admits and refuses accordingly.
//
// The Meter takes its time from clock, which only moves forward but for a look at windows that are over. One Meter may go
// through any number of sequences with different seeds: each has its own counters and ids.
func Property(ctx context.Context, seed int64, meter pool.Meter, clock *Clock) error {
	r := &run{
		ctx: ctx, meter: meter, clock: clock, seed: seed,
		random: rand.New(rand.NewPCG(uint64(seed), 0)),
		ledger: ledger{clock: clock, buckets: map[string]*bucket{}},
	}
	r.begin()
	return play(seed, clock, func(int) (string, func() error) { return r.choose() }, r.check, r.end)
}

// play acts step by step, looks after each whether all is well, and once more at the end.
func play(seed int64, clock *Clock, next func(step int) (name string, act func() error), check, end func() error) error {
	for step := range steps {
		name, act := next(step)
		err := act()
		if err == nil {
			err = check()
		}
		if err != nil {
			return fmt.Errorf("seed %d, step %d (%s), %s: %w", seed, step, name, clock.Now(), err)
		}
	}
	if err := end(); err != nil {
		return fmt.Errorf("seed %d, at the end, %s: %w", seed, clock.Now(), err)
	}
	return nil
}

// run is one sequence.
type run struct {
	ctx      context.Context
	meter    pool.Meter
	clock    *Clock
	seed     int64
	random   *rand.Rand
	counters []pool.Charge
	ledger   ledger
	ids      int
}

// begin chooses the counters and the hour.
func (r *run) begin() {
	key := func(name string) string { return pool.Key("property", strconv.FormatInt(r.seed, 10), name) }
	window := func(name string, span pool.Span, limit, grace int64) pool.Charge {
		return pool.Charge{Key: key(name), Reason: name, Window: pool.Window{Limit: limit, Grace: grace, Span: span}}
	}
	rate := func(name string, limit, burst int64) pool.Charge {
		return pool.Charge{Key: key(name), Reason: name, Rate: pool.Rate{Limit: limit, Per: time.Minute, Burst: burst}}
	}
	const dollar = 1_000_000_000
	r.counters = []pool.Charge{
		window("seconds", pool.Span(5*time.Second), 20+r.random.Int64N(100), 0),
		window("minute", pool.Span(time.Minute), 1000, r.random.Int64N(100)),
		window("day", pool.Day, dollar, 0),
		window("month", pool.Month, 1+r.random.Int64N(2*dollar), dollar/10),
		rate("rpm", 7, r.random.Int64N(8)),
		rate("tpm", 1000+r.random.Int64N(9), 1500),
	}
	r.clock.Advance(time.Duration(r.random.Int64N(int64(3 * time.Hour))).Truncate(time.Microsecond))
	if r.random.IntN(4) == 0 {
		_, end := pool.Month.At(r.clock.Now())
		r.clock.Set(end.Add(-20 * time.Second))
	}
}

// choose picks the next step.
func (r *run) choose() (name string, act func() error) {
	for pick := r.random.IntN(100); ; pick = r.random.IntN(100) {
		switch {
		case pick < 35:
			return "admit", r.admit
		case pick < 60:
			return "clock", r.advance
		case pick < 75:
			return "settle", func() error { return r.settle(false) }
		case pick < 81:
			return "void", func() error { return r.settle(true) }
		case pick < 86:
			return "repeat", r.repeat
		case pick < 93:
			return "renew", r.renew
		case pick < 96:
			return "crash", r.crash
		default:
			return "debit", r.debit
		}
	}
}

func (r *run) admit() error {
	charges := r.charges()
	id, ttl := r.newID(), []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 10 * time.Minute}[r.random.IntN(4)]
	var want []pool.Refused
	for _, c := range charges {
		if refused, fits := r.ledger.refusal(c); !fits {
			want = append(want, refused)
		}
	}
	bookings, err := r.meter.Admit(r.ctx, id, ttl, charges)
	var refusal *pool.Refusal
	switch {
	case errors.As(err, &refusal):
		return sameRefusals(refusal.Refused, want)
	case err != nil:
		return err
	case want != nil:
		return fmt.Errorf("%+v was admitted, want refusals by %+v", charges, want)
	case len(bookings) != len(charges):
		return fmt.Errorf("%d bookings for %d charges", len(bookings), len(charges))
	}
	r.ledger.admitted(id, ttl, bookings)
	for i, b := range bookings {
		stands, drained := r.ledger.stands(charges[i]), r.ledger.attempts[len(r.ledger.attempts)-1].entries[i].drained
		if b.Charge != charges[i] || !same(b.Standing, stands) || !b.DrainedAt.Equal(drained) {
			return fmt.Errorf("booked as %+v, want %+v standing at %+v and drained at %s", b, charges[i], stands, drained)
		}
	}
	return nil
}

func sameRefusals(got, want []pool.Refused) error {
	if len(got) != len(want) {
		return fmt.Errorf("refused by %+v, want %+v", got, want)
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.Charge != w.Charge || !same(g.Standing, w.Standing) || g.RetryAfter != w.RetryAfter || g.Never != w.Never {
			return fmt.Errorf("refused with %+v, want %+v", g, w)
		}
	}
	return nil
}

// settle ends an attempt, in time or late. Sometimes it names only some of the bookings.
func (r *run) settle(void bool) error {
	a := r.pick(func(a *attempt) bool { return !a.gone && a.ended.IsZero() })
	if a == nil {
		return nil
	}
	actuals := make([]pool.Actual, 0, len(a.entries))
	var settled []*entry
	for _, e := range a.entries {
		came := []int64{0, e.Amount, r.random.Int64N(e.Amount + 1), e.Amount + r.random.Int64N(e.Amount+10)}[r.random.IntN(4)]
		switch {
		case void:
			came = 0
		case r.random.IntN(8) == 0:
			continue
		}
		actuals = append(actuals, pool.Actual{Booking: e.Booking, Came: came})
		settled = append(settled, e)
	}
	a.ended = r.clock.Now()
	if err := r.meter.Settle(r.ctx, a.id, actuals); err != nil {
		return err
	}
	for i, e := range settled {
		r.ledger.settled(e, actuals[i].Came)
	}
	return r.lookBack(settled)
}

// lookBack compares what windows that are over hold, for which it turns the clock back.
func (r *run) lookBack(settled []*entry) error {
	now := r.clock.Now()
	defer r.clock.Set(now)
	for _, e := range settled {
		if e.Window == (pool.Window{}) {
			continue
		}
		_, end := e.Window.Span.At(e.Start)
		if now.Before(end) || !now.Before(end.Add(pool.WindowMemory)) {
			continue
		}
		r.clock.Set(end.Add(-time.Microsecond))
		standings, err := r.meter.Read(r.ctx, []pool.Charge{e.Charge})
		if err != nil {
			return err
		}
		if want, _ := r.ledger.use(e.Charge, e.Start, now); standings[0].Settled != want {
			return fmt.Errorf("%s, which ended %s, holds %d settled, want %d", e.Key, end, standings[0].Settled, want)
		}
	}
	return nil
}

// repeat ends an attempt once more, in any way. That must change nothing.
func (r *run) repeat() error {
	if len(r.ledger.debits) > 0 && r.random.IntN(3) == 0 {
		d := r.ledger.debits[r.random.IntN(len(r.ledger.debits))]
		if r.clock.Now().Sub(d.at) < pool.DebitMemory {
			return r.meter.Debit(r.ctx, d.id, []pool.Charge{d.charge})
		}
	}
	a := r.pick(func(a *attempt) bool { return !a.ended.IsZero() && r.clock.Now().Sub(a.ended) < pool.SettleMemory })
	if a == nil {
		return nil
	}
	actuals := make([]pool.Actual, 0, len(a.entries))
	for _, e := range a.entries {
		actuals = append(actuals, pool.Actual{Booking: e.Booking, Came: r.random.Int64N(e.Amount + 2)})
	}
	return r.meter.Settle(r.ctx, a.id, actuals)
}

// renew renews a few attempts, whatever became of them.
func (r *run) renew() error {
	ttl := time.Duration(1+r.random.Int64N(60)) * time.Second
	var renewals []pool.Renewal
	for range 1 + r.random.IntN(4) {
		a := r.pick(func(a *attempt) bool { return !a.gone })
		if a == nil {
			return nil
		}
		renewal := pool.Renewal{ID: a.id}
		for _, e := range a.entries {
			renewal.Bookings = append(renewal.Bookings, e.Booking)
			if e.live(r.clock.Now()) {
				e.leased = r.clock.Now().Add(ttl)
			}
		}
		renewals = append(renewals, renewal)
	}
	return r.meter.Renew(r.ctx, renewals, ttl)
}

func (r *run) crash() error {
	if a := r.pick(func(a *attempt) bool { return a.ended.IsZero() }); a != nil {
		a.gone = true
	}
	return nil
}

func (r *run) debit() error {
	id, charges := r.newID(), r.charges()
	if err := r.meter.Debit(r.ctx, id, charges); err != nil {
		return err
	}
	r.ledger.debit(id, charges)
	return nil
}

// advance moves the clock by something between a microsecond and hours, or right to an edge or beside it.
func (r *run) advance() error {
	now := r.clock.Now()
	beside := time.Duration(r.random.IntN(3)-1) * time.Microsecond
	switch pick := r.random.IntN(100); {
	case pick < 40:
		r.clock.Advance(r.upTo(time.Second))
	case pick < 70:
		r.clock.Advance(r.upTo(10 * time.Second))
	case pick < 78:
		r.clock.Advance(r.upTo(2 * time.Minute))
	case pick < 88:
		if a := r.pick(func(a *attempt) bool { return a.entries[0].live(now) }); a != nil && a.entries[0].leased.Add(beside).After(now) {
			r.clock.Set(a.entries[0].leased.Add(beside))
		}
	case pick < 98:
		c := r.counters[r.random.IntN(2)]
		if _, end := c.Window.Span.At(now); end.Add(beside).After(now) {
			r.clock.Set(end.Add(beside))
		}
	default:
		r.clock.Advance(r.upTo(3 * time.Hour))
	}
	return nil
}

// check compares every counter with the ledger, and with what it may hold at most.
func (r *run) check() error {
	standings, err := r.meter.Read(r.ctx, r.counters)
	if err != nil {
		return err
	}
	if len(standings) != len(r.counters) {
		return fmt.Errorf("read %d standings of %d", len(standings), len(r.counters))
	}
	for i, c := range r.counters {
		got, want := standings[i], r.ledger.stands(c)
		if got.Settled < 0 || got.Reserved < 0 || got.Remaining < 0 || got.Reset < 0 {
			return fmt.Errorf("%s stands at %+v, and something is negative", c.Key, got)
		}
		if c.Window != (pool.Window{}) && got.Settled+got.Reserved > r.ledger.bound(c, got.Start) {
			return fmt.Errorf("%s stands at %+v, want at most %d", c.Key, got, r.ledger.bound(c, got.Start))
		}
		if !same(got, want) {
			return fmt.Errorf("%s stands at %+v, want %+v", c.Key, got, want)
		}
	}
	return nil
}

// end waits until every lease is over. What was neither settled nor void is lost then, and has left nothing.
func (r *run) end() error {
	last := r.clock.Now()
	for _, a := range r.ledger.attempts {
		for _, e := range a.entries {
			if e.leased.After(last) {
				last = e.leased
			}
		}
	}
	r.clock.Set(last)
	for _, c := range r.counters {
		if stands := r.ledger.stands(c); stands.Reserved != 0 {
			return fmt.Errorf("the ledger itself has %d reserved on %s", stands.Reserved, c.Key)
		}
		if c.Window != (pool.Window{}) {
			continue
		}
		// One more, because instants are whole microseconds.
		if surge, most := r.ledger.surge(c), 2*(c.Rate.Burst+1)+1; surge.Cmp(whole(most)) > 0 {
			return fmt.Errorf("%s let %s through at once, want at most %d", c.Key, surge.FloatString(3), most)
		}
	}
	return r.check()
}

// charges picks some counters in any order, with amounts that are nothing, a little, or hardly fit.
func (r *run) charges() []pool.Charge {
	some := r.random.Perm(len(r.counters))[:1+r.random.IntN(4)]
	charges := make([]pool.Charge, 0, len(some))
	for _, i := range some {
		c := r.counters[i]
		most := max(c.Window.Limit+c.Window.Grace, c.Rate.Burst+1)
		switch pick := r.random.IntN(20); {
		case pick < 2:
			c.Amount = 0
		case pick < 4:
			c.Amount = r.ledger.stands(c).Remaining + int64(r.random.IntN(2))
		case pick < 5:
			c.Amount = most + 1
		case pick < 8:
			c.Amount = r.random.Int64N(most)
		default:
			c.Amount = r.random.Int64N(most/8 + 2)
		}
		charges = append(charges, c)
	}
	return charges
}

// pick returns one of the attempts that are wanted, the latest rather than the first, or nil.
func (r *run) pick(wanted func(*attempt) bool) *attempt {
	all := r.ledger.attempts
	for range 20 {
		if len(all) == 0 {
			return nil
		}
		back := min(r.random.IntN(len(all)), r.random.IntN(len(all)))
		if a := all[len(all)-1-back]; wanted(a) {
			return a
		}
	}
	return nil
}

func (r *run) upTo(most time.Duration) time.Duration {
	return time.Duration(1+r.random.Int64N(most.Microseconds())) * time.Microsecond
}

func (r *run) newID() pool.ID {
	r.ids++
	return pool.ID(fmt.Sprintf("property-%d-%d", r.seed, r.ids))
}
