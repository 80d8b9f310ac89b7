package admit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// faulty puts faults between a Controller and real counters: an operation does not happen, or it does and nobody hears
// of it.
type faulty struct {
	pool.Meter

	mu sync.Mutex
	r  *rand.Rand
	// bad is the share of operations that fail; poison begins the ids whose settling always does.
	bad    float64
	poison string
}

// faults of one operation.
const (
	sound = iota
	unsent
	unheard
)

func (m *faulty) draw(id pool.ID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.poison != "" && strings.HasPrefix(string(id), m.poison):
		return unsent
	case m.bad == 0 || m.r.Float64() >= m.bad:
		return sound
	default:
		return unsent + m.r.IntN(2)
	}
}

func (m *faulty) set(bad float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bad = bad
}

func (m *faulty) Admit(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
	switch m.draw("") {
	case unsent:
		return nil, pool.ErrUnavailable
	case unheard:
		_, _ = m.Meter.Admit(ctx, id, ttl, charges)
		return nil, pool.ErrUnavailable
	}
	return m.Meter.Admit(ctx, id, ttl, charges)
}

func (m *faulty) Settle(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
	switch m.draw(id) {
	case unsent:
		return pool.ErrUnavailable
	case unheard:
		_ = m.Meter.Settle(ctx, id, actuals)
		return pool.ErrUnavailable
	}
	return m.Meter.Settle(ctx, id, actuals)
}

func (m *faulty) Debit(ctx context.Context, id pool.ID, charges []pool.Charge) error {
	switch m.draw(id) {
	case unsent:
		return pool.ErrUnavailable
	case unheard:
		_ = m.Meter.Debit(ctx, id, charges)
		return pool.ErrUnavailable
	}
	return m.Meter.Debit(ctx, id, charges)
}

// withFaults is inBubble with faults.
func withFaults(t *testing.T, m *faulty, options Options, test func(t *testing.T, d *desk)) {
	t.Helper()
	inBubble(t, options, func(t *testing.T, d *desk) {
		d.stop()
		m.Meter = d.options.Meter
		options.Meter, options.Log, options.OutputReserve = m, d.options.Log, 50
		d.Controller = New(options)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); d.Run(ctx) }()
		d.stop = func() { cancel(); <-ended }
		test(t, d)
		d.stop()
	})
}

// Whatever happens on the way to the counters, they come to what the calls came to, to the unit, and nothing stays
// reserved.
func TestAccounts_AreExactThroughFaults(t *testing.T) {
	for seed := range uint64(120) {
		m := &faulty{r: rand.New(rand.NewPCG(seed, 2)), bad: []float64{0, 0.3, 0.9}[seed%3]}
		withFaults(t, m, Options{Grace: 0.05, FailClosed: seed%2 == 0}, func(t *testing.T, d *desk) {
			who := *someone
			who.TPMLimit, who.TeamID = 1<<24, "team"
			l := limits{caps: map[string]int64{"key/app/day": 1 << 40, "user/u/month": 1 << 40}, team: 1 << 41}
			var mu sync.Mutex
			var cost, tokens int64
			call := func(id string, r *rand.Rand) {
				input, output := r.Int64N(100), 1+r.Int64N(100)
				a := d.Open(Call{ID: id, Caller: &who, UserID: "u", Limits: l, Input: func() int64 { return input },
					MaxOutput: output, Output: func(vendors.Target) int64 { return output }})
				defer a.Close()
				for range 1 + r.IntN(4) {
					one := model(fmt.Sprint("m", r.IntN(2)))
					one.Rpm, one.DailyTokensPerKey, one.DailyTokensPerUser = 1000, 1<<40, 1<<40
					ticket, refused := a.Admit(t.Context(), one, vendors.Target{})
					if refused != nil {
						continue
					}
					time.Sleep(time.Duration(r.IntN(100)) * time.Second)
					switch r.IntN(4) {
					case 0:
						ticket.Void()
					case 1:
						return // Close ends it
					default:
						u := used(r.Int64N(200), r.Int64N(200))
						ticket.Settle(u)
						mu.Lock()
						cost, tokens = cost+u.CostNanousd, tokens+u.Input+u.Output
						mu.Unlock()
					}
				}
			}
			var calls sync.WaitGroup
			for i := range uint64(20) {
				calls.Go(func() { call(fmt.Sprint("c", i), rand.New(rand.NewPCG(seed, i))) })
			}
			calls.Wait()
			m.set(0)
			time.Sleep(time.Minute) // lapsed leases, and bookings that are tried again
			synctest.Wait()

			check := func(what string, got, want int64) {
				if got != want {
					t.Errorf("seed %d: %s: %d, want %d", seed, what, got, want)
				}
			}
			for _, s := range [][3]string{{SubjectKey, "app", PeriodDay}, {SubjectUser, "u", PeriodMonth}, {SubjectTeam, "team", PeriodMonth}} {
				w, err := d.Spent(t.Context(), l, s[0], s[1], s[2])
				if err != nil {
					t.Fatal(err)
				}
				check(s[0]+" settled", w[0].Settled, cost)
				check(s[0]+" reserved", w[0].Reserved, 0)
			}
			var budget int64
			for _, id := range []string{"m0", "m1"} {
				s, err := m.Read(t.Context(), []pool.Charge{{Key: pool.Key("tokens", SubjectKey, "app", id), Window: pool.Window{Limit: 1 << 40, Span: pool.Day}}})
				if err != nil {
					t.Fatal(err)
				}
				budget += s[0].Settled
				check("budget reserved", s[0].Reserved, 0)
			}
			check("budget", budget, tokens)
			check("live attempts", int64(len(d.live)), 0)
			check("open accounts", int64(d.open), 0)
		})
		if t.Failed() {
			return
		}
	}
}

func TestBookkeeper_ABookingThatNeverSucceedsKeepsNobodyWaiting(t *testing.T) {
	withFaults(t, &faulty{poison: "bad"}, Options{}, func(t *testing.T, d *desk) {
		l := capped(1 << 50)
		const bad = 500
		for i := range bad {
			a := d.call(fmt.Sprint("bad", i), someone, l, 1, 1)
			ticket, _ := d.admit(a, model("m"))
			ticket.Settle(used(1, 1))
			a.Close()
		}
		a := d.call("good", someone, l, 1, 1)
		ticket, _ := d.admit(a, model("m"))
		ticket.Settle(used(1, 1))
		a.Close()
		if w := d.spent(l); w.Settled != 2000 {
			t.Errorf("%+v, want the good one booked at once", w)
		}
		time.Sleep(maxBookingAge + 2*bookAgain)
		if lost := d.lost.Load(); lost != bad {
			t.Errorf("%d are given up, want the %d bad ones", lost, bad)
		}
	})
}

func TestBookkeeper_WhatIsLostAtTheEndIsCounted(t *testing.T) {
	told := 0
	withFaults(t, &faulty{poison: "c"}, Options{Lost: func() { told++ }}, func(t *testing.T, d *desk) {
		for i := range 100 {
			a := d.call(fmt.Sprint("c", i), someone, capped(1<<50), 1, 1)
			ticket, _ := d.admit(a, model("m"))
			ticket.Settle(used(1, 1))
			a.Close()
		}
		d.stop()
		if lost, left := d.lost.Load(), len(d.waiting)+len(d.failed); lost != 100 || left != 0 || told != 100 {
			t.Errorf("%d are counted as lost, %d told and %d left, want 100, 100 and none", lost, told, left)
		}
	})
}

func TestController_ACallAfterTheEndDoesNoHarm(t *testing.T) {
	c := New(Options{Meter: memory.New(memory.Options{}), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Run(ctx)
	c.Open(Call{ID: "late", Caller: someone, Limits: limits{}}).Close()
}

// leaving is a caller that leaves while the counters answer.
type leaving struct {
	pool.Meter
	leave context.CancelFunc
}

func (m leaving) Admit(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
	bookings, err := m.Meter.Admit(ctx, id, ttl, charges)
	m.leave()
	if ctx.Err() != nil { // as a client of a server does, which stops listening for the answer
		return nil, ctx.Err()
	}
	return bookings, err
}

func TestAccount_WhoLeavesDuringAdmissionLeavesNothingBehind(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l, m := capped(1_000_000), model("m")
		m.Rpm = 1
		ctx, cancel := context.WithCancel(t.Context())
		meter := d.options.Meter
		d.options.Meter = leaving{meter, cancel}
		a := d.call("a", someone, l, 100, 300)
		ticket, refused := a.Admit(ctx, m, vendors.Target{})
		if refused != nil {
			t.Fatal(refused)
		}
		ticket.Void() // as the walk does when it finds the caller gone
		a.Close()
		d.options.Meter = meter
		if w := d.spent(l); w.Reserved != 0 || w.Settled != 0 {
			t.Errorf("%+v", w)
		}
		if _, refused := d.admit(d.call("b", someone, l, 1, 1), m); refused != nil {
			t.Error(refused)
		}
	})
}

func TestAccount_OnlyCallsInFlightInTheWayIsAShortWait(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		a := d.call("a", someone, l, 100, 500)
		ticket, _ := d.admit(a, model("m"))
		_, refused := d.admit(d.call("b", someone, l, 100, 500), model("m"))
		if refused == nil || refused.Wait != heldWait {
			t.Errorf("%+v, want a wait of %v", refused, heldWait)
		}
		ticket.Settle(used(100, 500))
		a.Close()
		synctest.Wait()
		_, refused = d.admit(d.call("c", someone, l, 100, 500), model("m"))
		if refused == nil || refused.Wait != 12*time.Hour {
			t.Errorf("%+v, want a wait until midnight", refused)
		}
	})
}

func TestAccount_EnormousAnswersSaturate(t *testing.T) {
	inBubble(t, Options{OutputReserve: 1 << 62}, func(t *testing.T, d *desk) {
		for name, output := range map[string]int64{"the setting": 0, "the model": 1 << 62} {
			a := d.Open(Call{ID: name, Caller: someone, Limits: capped(1000), Input: func() int64 { return 0 }, Choices: 2,
				Output: func(vendors.Target) int64 { return output }})
			if _, refused := d.admit(a, model("m")); refused == nil || refused.Reason != status.SpendKeyDaily {
				t.Errorf("%s: %+v", name, refused)
			}
			a.Close()
		}
	})
}
