package servertest_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/pool/redis"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/store/storetest"
)

// away is a server whose counters are in a Redis that the test takes away.
type away struct {
	*limited
	redis *pooltest.RedisServer
	asked *asked
}

// asked is a meter that notes how often the counters failed a call that waits for them. Bookings that are made later
// belong to none.
type asked struct {
	pool.Meter
	mu       sync.Mutex
	failures map[string]int
}

func (a *asked) note(ctx context.Context, err error) {
	if id := caller.RequestID(ctx); id != "" && errors.Is(err, pool.ErrUnavailable) {
		a.mu.Lock()
		a.failures[id]++
		a.mu.Unlock()
	}
}

func (a *asked) Admit(ctx context.Context, id pool.ID, ttl time.Duration, charges []pool.Charge) ([]pool.Booking, error) {
	bookings, err := a.Meter.Admit(ctx, id, ttl, charges)
	a.note(ctx, err)
	return bookings, err
}

func (a *asked) Settle(ctx context.Context, id pool.ID, actuals []pool.Actual) error {
	err := a.Meter.Settle(ctx, id, actuals)
	a.note(ctx, err)
	return err
}

func (a *asked) Debit(ctx context.Context, id pool.ID, charges []pool.Charge) error {
	err := a.Meter.Debit(ctx, id, charges)
	a.note(ctx, err)
	return err
}

func (a *asked) Read(ctx context.Context, charges []pool.Charge) ([]pool.Standing, error) {
	standings, err := a.Meter.Read(ctx, charges)
	a.note(ctx, err)
	return standings, err
}

// shortLease lets the tests see the end of reservations that nobody can settle.
const shortLease = 2 * time.Second

// startAway starts both. down is a Redis that is away from the start; change may be nil.
func startAway(t *testing.T, down bool, change func(*server.Options)) *away {
	t.Helper()
	a := &away{redis: pooltest.StartRedis(t)}
	if down {
		a.redis.Stop()
	}
	var meter pool.Meter
	a.limited = limitedBy(t, counters{}, func(o *server.Options) {
		metrics := o.Metrics
		client, err := redis.New(redis.Options{Addr: a.redis.Addr, Timeout: 500 * time.Millisecond, Log: o.Log,
			Failed: func(operation string) { metrics.DependencyFailed(server.DependencyRedis, operation) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		meter = client.Meter()
		a.asked = &asked{Meter: meter, failures: map[string]int{}}
		o.Meter, o.Limits.Lease = a.asked, shortLease
		if change != nil {
			change(o)
		}
	})
	a.Meter = meter
	t.Cleanup(func() {
		a.asked.mu.Lock()
		defer a.asked.mu.Unlock()
		for id, n := range a.asked.failures {
			if n > 1 {
				t.Errorf("call %s asked counters that were away %d times: each time costs it a timeout", id, n)
			}
		}
	})
	return a
}

// errors are the failures of an operation that operators see.
func (a *away) errors(t *testing.T, operation string) float64 {
	t.Helper()
	return metric(t, a.Instance, "ktms_dependency_errors_total", `"`+operation+`"`)
}

// unmetered counts a key's lines in the log that say so, and those that do not.
func (a *away) unmetered(key string) (without, with int) {
	for _, line := range a.lines(key) {
		if line.Unmetered {
			without++
		} else {
			with++
		}
	}
	return without, with
}

// ends waits until nothing is reserved and so much is settled.
func (a *away) ends(t *testing.T, key string, nano int64) {
	t.Helper()
	var settled, reserved int64
	deadline := time.Now().Add(patience)
	for {
		r, err := a.Admin.GetSpend(t.Context(), &ktmsv1.GetSpendRequest{SubjectType: "key", SubjectId: key})
		if err == nil {
			w := r.GetWindows()[0]
			reserved = w.GetReservedNanousd()
			settled = w.GetSpentNanousd() - reserved
			if settled == nano && reserved == 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are booked and %d reserved (%v), want %d; lost: %s", settled, reserved, err, nano, a.log.lost)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tight makes a key and a model on which every limit is reached with the first call, but for the spend limit.
func (a *away) tight(t *testing.T) (key string, call ask) {
	t.Helper()
	free := a.priced("free", nil)
	free.PriceInPerMtok, free.PriceOutPerMtok = 0, 0
	a.models(t, a.priced("m", func(m *ktmsv1.ModelSpec) { m.Rpm, m.RpmBurst, m.DailyTokensPerKey = 1, -1, callTokens }), free)
	key = a.key(t, "app", func(r *ktmsv1.MintAPIKeyRequest) { r.Policy = &ktmsv1.APIKeyPolicy{RpmLimit: 1, TpmLimit: callTokens} })
	a.caps(t, "key", "app", "day", farNano)
	return key, ask{model: "m", maxTokens: answerTokens}
}

// goesOn makes calls while Redis is away, all of which are served, and returns how many.
func (a *away) goesOn(t *testing.T, key string, call ask) (calls int) {
	t.Helper()
	doors := a.doors()
	for range 2 {
		for through, door := range doors {
			for _, call.stream = range []bool{false, true} {
				before := a.errors(t, "admit")
				if got := door(t.Context(), t, key, call); !got.ok() || got.cost != callNano {
					t.Errorf("%s, stream %v: %+v", through, call.stream, got)
				}
				if n := a.errors(t, "admit") - before; n > 1 {
					t.Errorf("%s, stream %v: Redis failed it %v times", through, call.stream, n)
				}
				calls++
			}
		}
	}
	_, err := a.Admin.GetSpend(t.Context(), &ktmsv1.GetSpendRequest{SubjectType: "key", SubjectId: "app"})
	wantCode(t, "GetSpend", err, connect.CodeUnavailable, "throttled:spend_unavailable")
	if err != nil && reasonOf(t, err) != "throttled:spend_unavailable" {
		t.Errorf("GetSpend: %v", err)
	}
	if without, _ := a.unmetered("app"); without != calls {
		t.Errorf("%d lines say unmetered, want %d", without, calls)
	}
	if a.errors(t, "admit") == 0 {
		t.Error("operators see nothing")
	}
	return calls
}

// TestLimits_RedisAway: rates and budgets let calls through, the money is booked once Redis is back, and it is back by
// itself.
func TestLimits_RedisAway(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		down    bool
		leave   func(*testing.T, *pooltest.RedisServer)
		back    func(*testing.T, *pooltest.RedisServer)
		forgets bool
	}{
		"stopped":        {leave: func(_ *testing.T, r *pooltest.RedisServer) { r.Stop() }, back: func(t *testing.T, r *pooltest.RedisServer) { r.Start(t) }, forgets: true},
		"hanging":        {leave: func(t *testing.T, r *pooltest.RedisServer) { r.Pause(t) }, back: func(t *testing.T, r *pooltest.RedisServer) { r.Resume(t) }},
		"from the start": {down: true, back: func(t *testing.T, r *pooltest.RedisServer) { r.Start(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAway(t, one.down, nil)
			key, call := a.tight(t)
			booked := 0
			if one.leave != nil {
				a.once(t, "the healthy one", key, call)
				a.ends(t, "app", callNano)
				if got := a.openai(t.Context(), t, key, call); got.ok() {
					t.Fatalf("nothing is limited, the test shows nothing: %+v", got)
				}
				if !one.forgets {
					booked++
				}
				one.leave(t, a.redis)
			}
			booked += a.goesOn(t, key, call)
			one.back(t, a.redis)
			a.ends(t, "app", int64(booked)*callNano)
			if s := a.tokens(t, "key", "app", "m"); s.Settled != int64(booked)*callTokens || s.Reserved != 0 {
				t.Errorf("the budget stands at %+v, want %d", s, booked*callTokens)
			}
			// The day's tokens are more than used.
			storetest.Eventually(t, patience, "limits are enforced again", func() bool {
				return !a.openai(t.Context(), t, key, call).ok()
			})
			other := a.key(t, "other", nil)
			if got := a.openai(t.Context(), t, other, ask{model: "free"}); !got.ok() {
				t.Errorf("another key: %+v", got)
			}
		})
	}
}

// TestLimits_RedisAwayInMidLoad: whatever happened to the counters meanwhile, what was answered is booked once. The load
// is a few hundred calls a second: more than ten thousand that wait to be booked would not all be kept.
func TestLimits_RedisAwayInMidLoad(t *testing.T) {
	t.Parallel()
	const phase = 60
	a := startAway(t, false, nil)
	a.models(t, a.priced("m", func(m *ktmsv1.ModelSpec) { m.Rpm = 1_000_000 }))
	key := a.key(t, "app", nil)
	a.caps(t, "key", "app", "day", farNano)
	var answered atomic.Int64
	var running sync.WaitGroup
	// more makes calls until enough have ended, unmetered or not, and leaves the last of them in flight.
	more := func(what string, unmetered bool) {
		t.Helper()
		without, with := a.unmetered("app")
		storetest.Eventually(t, patience, what, func() bool {
			for _, stream := range []bool{false, true} {
				running.Go(func() {
					if got := a.openai(t.Context(), t, key, ask{model: "m", stream: stream, maxTokens: answerTokens}); !got.ok() || got.cost != callNano {
						t.Errorf("%+v", got)
						return
					}
					answered.Add(1)
				})
			}
			nowWithout, nowWith := a.unmetered("app")
			if unmetered {
				return nowWithout >= without+phase
			}
			return nowWith >= with+phase
		})
	}
	for range 2 {
		more("calls are counted", false)
		a.redis.Pause(t)
		more("calls go on without counters", true)
		a.redis.Resume(t)
	}
	more("calls are counted again", false)
	running.Wait()
	a.ends(t, "app", answered.Load()*callNano)
	if len(a.log.lost) > 0 {
		t.Errorf("the test asks for too much: %s", a.log.lost)
	}
}

// TestLimits_RedisGoesDuringACall: what the first model reserved cannot be given back, and the second one is asked
// without another question.
func TestLimits_RedisGoesDuringACall(t *testing.T) {
	t.Parallel()
	a := startAway(t, false, nil)
	a.models(t, a.priced("first", nil), a.priced("second", nil))
	key := a.key(t, "app", nil)
	a.caps(t, "key", "app", "day", farNano)
	a.script.on("first", func(w http.ResponseWriter, r *http.Request, stream bool) {
		if len(a.script.bodies("first")) == 1 {
			a.redis.Pause(t)
		}
		fails(500, `{"error":{"message":"down"}}`)(w, r, stream)
	})
	if got := a.openai(t.Context(), t, key, ask{maxTokens: answerTokens}); !got.ok() || got.model != "second" {
		t.Errorf("%+v", got)
	}
	if got := a.errors(t, "admit"); got != 0 {
		t.Errorf("the second model was asked for %v times, although Redis was away", got)
	}
	if without, _ := a.unmetered("app"); without != 1 {
		t.Error("the log does not say unmetered")
	}
	a.redis.Resume(t)
	a.ends(t, "app", callNano)
}

// TestLimits_RedisAwayAndClosed: no money is spent that nobody counts; what costs none is served.
func TestLimits_RedisAwayAndClosed(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"stopped": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAway(t, false, func(o *server.Options) { o.Limits.SpendClosed = true })
			key, call := a.tight(t)
			uncapped := a.key(t, "uncapped", nil)
			if hangs {
				a.redis.Pause(t)
			} else {
				a.redis.Stop()
			}
			refused := 0.0
			for through, door := range a.doors() {
				for _, call.stream = range []bool{false, true} {
					got := door(t.Context(), t, key, call)
					want := seen{code: connect.CodeUnavailable, http: 200, reason: "throttled:spend_unavailable"}
					if through == "openai" {
						want = seen{http: 503, reason: "throttled:spend_unavailable", kind: "server_error"}
					}
					if got.code != want.code || got.http != want.http || got.reason != want.reason || got.kind != want.kind || got.wait != 0 || got.again != "" {
						t.Errorf("%s, stream %v: %+v, want %+v", through, call.stream, got, want)
					}
					refused++
					// The chain has a model without prices.
					if got := door(t.Context(), t, key, ask{stream: call.stream}); !got.ok() || got.model != "free" {
						t.Errorf("%s, stream %v, the chain: %+v", through, call.stream, got)
					}
					refused++
					if got := door(t.Context(), t, uncapped, call); !got.ok() || got.model != "m" {
						t.Errorf("%s, stream %v, a key without a cap: %+v", through, call.stream, got)
					}
				}
			}
			if got := metric(t, a.Instance, "ktms_throttled_total", `"spend_unavailable"`); got != refused {
				t.Errorf("%v refusals are counted, want %v", got, refused)
			}
			if n := len(a.script.bodies("m")); n != len(a.doors())*2 {
				t.Errorf("the model was asked %d times, want by the key without a cap alone", n)
			}
			if hangs {
				a.redis.Resume(t)
			} else {
				a.redis.Start(t)
			}
			rich := a.key(t, "rich", nil)
			a.caps(t, "key", "rich", "day", farNano)
			storetest.Eventually(t, patience, "money is counted again", func() bool {
				return a.openai(t.Context(), t, rich, ask{model: "m", user: "u", maxTokens: answerTokens}).ok()
			})
			a.ends(t, "rich", callNano)
			a.ends(t, "app", 0)
		})
	}
}
