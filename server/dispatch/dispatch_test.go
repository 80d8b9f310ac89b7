package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// script says, per model, what its calls end in, one after another; after the last it answers.
type script map[string][]error

// world walks plans over a script.
type world struct {
	*Dispatcher
	metrics *Metrics
	health  *Health
	script  script
	tried   []string
}

func newWorld(s script, health HealthOptions, timeout time.Duration) *world {
	metrics := NewMetrics(prometheus.NewRegistry())
	health.Changed = metrics.CircuitChanged
	h := NewHealth(health)
	return &world{metrics: metrics, health: h, script: s,
		Dispatcher: New(Options{Health: h, Metrics: metrics, Log: slog.New(slog.DiscardHandler), Timeout: timeout})}
}

func candidate(model string) routing.Candidate {
	return routing.Candidate{Spec: &ktmsv1.ModelSpec{Id: model, Vendor: vendors.OpenAI}, Credential: "c",
		Target: vendors.Target{Vendor: vendors.OpenAI, Model: model}}
}

func plan(models ...string) *routing.Plan {
	p := &routing.Plan{Effort: ktmsv1.Effort_EFFORT_LOW}
	for _, m := range models {
		p.Candidates = append(p.Candidates, candidate(m))
	}
	return p
}

func (w *world) try(_ context.Context, a *Attempt) error {
	model := a.Candidate.Spec.GetId()
	w.tried = append(w.tried, model)
	if ends := w.script[model]; len(ends) > 0 {
		w.script[model] = ends[1:]
		return ends[0]
	}
	return nil
}

func failing(kind vendors.Kind) error { return &vendors.Error{Kind: kind, Vendor: vendors.OpenAI} }

func waiting(kind vendors.Kind, code int, wait time.Duration) error {
	return &vendors.Error{Kind: kind, Vendor: vendors.OpenAI, Status: code, RetryAfter: wait}
}

func TestWalk_WhatEachKindMeans(t *testing.T) {
	for _, test := range []struct {
		name   string
		script script
		tried  string
		want   status.Reason
	}{
		{"the first answers", script{}, "a", ""},
		{"unavailable once", script{"a": {failing(vendors.Unavailable)}}, "a a", ""},
		{"unavailable twice", script{"a": {failing(vendors.Unavailable), failing(vendors.Unavailable)}}, "a a b", ""},
		{"rate limited once", script{"a": {failing(vendors.RateLimited)}}, "a a", ""},
		{"a short wait is honoured", script{"a": {waiting(vendors.RateLimited, 429, time.Second)}}, "a a", ""},
		{"a longer wait means the next", script{"a": {waiting(vendors.RateLimited, 429, 1001*time.Millisecond)}}, "a b", ""},
		{"denied", script{"a": {failing(vendors.Denied)}}, "a b", ""},
		{"overflow", script{"a": {failing(vendors.Overflow)}}, "a b", ""},
		{"blocked", script{"a": {failing(vendors.Blocked)}}, "a b", ""},
		{"invalid stops", script{"a": {failing(vendors.Invalid)}}, "a", status.BadRequest},
		{"canceled stops", script{"a": {failing(vendors.Canceled)}}, "a", status.Canceled},
		{"an unknown error is the caller's side", script{"a": {errors.New("write: broken pipe")}}, "a", status.Canceled},
		{"all denied", script{"a": {failing(vendors.Denied)}, "b": {failing(vendors.Denied)}}, "a b", status.VendorError},
		{"all too long", script{"a": {failing(vendors.Overflow)}, "b": {failing(vendors.Overflow)}}, "a b", status.ContextTooLong},
		{"all blocked", script{"a": {failing(vendors.Blocked)}, "b": {failing(vendors.Blocked)}}, "a b", status.ContentFilter},
		{"one may pass", script{"a": {failing(vendors.Denied)}, "b": {failing(vendors.Unavailable), failing(vendors.Unavailable)}}, "a b b", status.VendorsUnavailable},
		{"mixed finals", script{"a": {failing(vendors.Overflow)}, "b": {failing(vendors.Denied)}}, "a b", status.VendorError},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(test.script, HealthOptions{Threshold: 5, Cooldown: time.Minute, MaxPause: time.Minute}, 0)
				outcome, err := w.Walk(t.Context(), plan("a", "b"), nil, w.try)
				got := status.Reason("")
				if err != nil {
					got = status.As(err).Reason
				}
				if got != test.want || strings.Join(w.tried, " ") != test.tried {
					t.Errorf("got %q after %v, want %q after %s (%v)", got, w.tried, test.want, test.tried, err)
				}
				if outcome.Attempts != len(w.tried) {
					t.Errorf("outcome counts %d attempts, there were %d", outcome.Attempts, len(w.tried))
				}
			})
		})
	}
}

// TestWalk_OneMachineAfterAnother: a machine that fails sends the call to the next one, without a wait and without a word to
// the circuit of the model. It ends when none is left.
func TestWalk_OneMachineAfterAnother(t *testing.T) {
	broken := func(node string) error {
		return &vendors.Error{Kind: vendors.Unavailable, Vendor: vendors.Local, Node: node}
	}
	wrong := func(node string) error {
		return &vendors.Error{Kind: vendors.Invalid, Vendor: vendors.Local, Node: node}
	}
	busy := func(wait time.Duration) error {
		return &vendors.Error{Kind: vendors.Busy, Vendor: vendors.Local, Unsent: true, RetryAfter: wait, Message: "all machines are busy"}
	}
	var many []error
	for i := range 3 * maxMachines {
		many = append(many, broken(strconv.Itoa(i)))
	}
	for _, test := range []struct {
		name     string
		script   script
		attempts int
		last     string // the machines that the last attempt on the pool knew of
		want     status.Reason
		wait     time.Duration
	}{
		{"two fail", script{"pool": {broken("x"), broken("y")}}, 3, "x y", "", 0},
		{"both fail, none is left", script{"pool": {broken("x"), broken("y"), busy(0)}, "b": {failing(vendors.Denied)}}, 4, "x y", status.VendorsUnavailable, 0},
		{"busy means the next model", script{"pool": {busy(0)}}, 2, "", "", 0},
		{"busy for a while", script{"pool": {busy(3 * time.Second)}, "b": {failing(vendors.Denied)}}, 2, "", status.VendorsUnavailable, 0},
		{"all are at fault", script{"pool": many}, maxMachines + 3, "0 1 2 3 4 5 6 7", "", 0},
		{"one calls it a mistake", script{"pool": {wrong("x")}}, 2, "x", "", 0},
		{"two call it a mistake", script{"pool": {wrong("x"), wrong("y")}}, 2, "x", status.BadRequest, 0},
		{"two with another between", script{"pool": {wrong("x"), broken("y"), wrong("z")}}, 3, "x y", status.BadRequest, 0},
		{"a mistake, and nobody else to ask", script{"pool": {wrong("x"), busy(0)}}, 2, "x", status.BadRequest, 0},
		{"a mistake, and nobody else is free", script{"pool": {wrong("x"), busy(time.Second)}}, 2, "x", status.BadRequest, 0},
		{"a mistake after many faults", script{"pool": append(many[:maxMachines:maxMachines], wrong("z"))}, maxMachines + 1, "0 1 2 3 4 5 6 7", status.BadRequest, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(test.script, HealthOptions{Threshold: 1, Cooldown: time.Minute, MaxPause: time.Minute}, 0)
				p := plan("pool", "b")
				p.Candidates[0].Spec.Vendor = vendors.Local
				var last []string
				_, err := w.Walk(t.Context(), p, nil, func(ctx context.Context, a *Attempt) error {
					if a.Candidate.Spec.GetId() == "pool" {
						last = a.Tried
					}
					return w.try(ctx, a)
				})
				got := status.Reason("")
				if err != nil {
					got = status.As(err).Reason
				}
				if got != test.want || len(w.tried) != test.attempts || strings.Join(last, " ") != test.last {
					t.Errorf("got %q after %v, the last with %v; want %q after %d, with %s (%v)", got, w.tried, last, test.want, test.attempts, test.last, err)
				}
				if w.health.CircuitOpen(vendors.Local, "pool") {
					t.Error("the model has a circuit beside those of its machines")
				}
			})
		})
	}
}

func TestWalk_NoFallbackAfterContent(t *testing.T) {
	w := newWorld(script{"a": {failing(vendors.Unavailable)}}, HealthOptions{Threshold: 5}, 0)
	_, err := w.Walk(t.Context(), plan("a", "b"), nil, func(ctx context.Context, a *Attempt) error {
		a.Commit()
		return w.try(ctx, a)
	})
	if got := status.As(err).Reason; got != status.VendorsUnavailable || len(w.tried) != 1 {
		t.Errorf("got %q after %v, want vendors_unavailable after one attempt", got, w.tried)
	}
}

func TestWalk_SilenceIsTheVendorsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil, HealthOptions{Threshold: 1, Cooldown: time.Minute}, time.Second)
		_, err := w.Walk(t.Context(), plan("a", "b"), nil, func(ctx context.Context, a *Attempt) error {
			w.tried = append(w.tried, a.Candidate.Spec.GetId())
			if a.Candidate.Spec.GetId() == "b" {
				for range 5 { // slow, but never silent for long
					time.Sleep(900 * time.Millisecond)
					a.Alive()
				}
				return ctx.Err()
			}
			<-ctx.Done()
			return &vendors.Error{Kind: vendors.Canceled, Err: ctx.Err()}
		})
		if err != nil || strings.Join(w.tried, " ") != "a b" {
			t.Errorf("got %v after %v, want an answer of b", err, w.tried)
		}
		if !w.health.CircuitOpen(vendors.OpenAI, "a") {
			t.Error("the silent model's circuit is closed")
		}
	})
}

// TestWalk_TheTimeIsOverInTheLine: nobody went silent, and standing in the same line again would be as long.
func TestWalk_TheTimeIsOverInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil, HealthOptions{Threshold: 5}, time.Second)
		p := plan("pool", "b")
		p.Candidates[0].Spec.Vendor = vendors.Local
		outcome, err := w.Walk(t.Context(), p, nil, func(ctx context.Context, a *Attempt) error {
			w.tried = append(w.tried, a.Candidate.Spec.GetId())
			if a.Candidate.Spec.GetId() == "b" {
				return failing(vendors.Denied)
			}
			<-ctx.Done()
			return &vendors.Error{Kind: vendors.Busy, Vendor: vendors.Local, Unsent: true, Message: "all machines are busy", Err: context.Cause(ctx)}
		})
		if strings.Join(w.tried, " ") != "pool b" || !strings.Contains(status.As(err).Text, "all machines are busy") || outcome.MaybeBilled {
			t.Errorf("got %v after %v", err, w.tried)
		}
	})
}

func TestWalk_TheCallersDepartureIsNobodysFault(t *testing.T) {
	w := newWorld(nil, HealthOptions{Threshold: 1}, 0)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := w.Walk(ctx, plan("a", "b"), nil, func(ctx context.Context, a *Attempt) error {
		w.tried = append(w.tried, a.Candidate.Spec.GetId())
		cancel()
		<-ctx.Done()
		return failing(vendors.Unavailable) // what a broken connection looks like to a dialect
	})
	if got := status.As(err).Reason; got != status.Canceled || len(w.tried) != 1 {
		t.Errorf("got %q after %v, want canceled after one attempt", got, w.tried)
	}
	if w.health.CircuitOpen(vendors.OpenAI, "a") {
		t.Error("the circuit opened")
	}
	if got := testutil.ToFloat64(w.metrics.requests.WithLabelValues(vendors.OpenAI, "a", "low", "canceled")); got != 1 {
		t.Errorf("canceled calls counted: %v, want 1", got)
	}
}

func TestWalk_DeadlineWhileWaitingToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(script{"a": {waiting(vendors.RateLimited, 429, time.Second)}}, HealthOptions{}, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := w.Walk(ctx, plan("a"), nil, w.try)
		if got := status.As(err).Reason; got != status.DeadlineExceeded {
			t.Errorf("got %q, want deadline_exceeded", got)
		}
	})
}

func TestWalk_PausesAndTheirPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(script{"a": {waiting(vendors.RateLimited, 429, 20*time.Second)}, "b": {waiting(vendors.Unavailable, 503, 90*time.Second)}},
			HealthOptions{MaxPause: time.Minute}, 0)
		_, err := w.Walk(t.Context(), plan("a", "b"), nil, w.try)
		e := status.As(err)
		if e.Reason != status.VendorsUnavailable || e.RetryAfter != 20*time.Second {
			t.Errorf("got %q with a wait of %v, want vendors_unavailable with 20s", e.Reason, e.RetryAfter)
		}
		if got := w.health.Paused(vendors.OpenAI, "c", "b"); got != time.Minute {
			t.Errorf("b is paused for %v, want the maximum of 1m", got)
		}
		if got := w.health.Paused(vendors.OpenAI, "other", "a"); got != 0 {
			t.Errorf("another credential is paused for %v", got)
		}
		time.Sleep(20 * time.Second)
		if got := w.health.Paused(vendors.OpenAI, "c", "a"); got != 0 {
			t.Errorf("the pause of a did not end: %v", got)
		}
	})
}

func TestWalk_NoPromiseWhenOneFailedOtherwise(t *testing.T) {
	w := newWorld(script{"a": {waiting(vendors.RateLimited, 429, 20*time.Second)}, "b": {failing(vendors.Denied)}}, HealthOptions{MaxPause: time.Minute}, 0)
	_, err := w.Walk(t.Context(), plan("a", "b"), nil, w.try)
	if e := status.As(err); e.Reason != status.VendorsUnavailable || e.RetryAfter != 0 {
		t.Errorf("got %q with a wait of %v, want vendors_unavailable without", e.Reason, e.RetryAfter)
	}
}

func TestWalk_WithPausesOffALongWaitIsRetriedOnce(t *testing.T) {
	w := newWorld(script{"a": {waiting(vendors.RateLimited, 429, 20*time.Second)}}, HealthOptions{}, 0)
	if _, err := w.Walk(t.Context(), plan("a", "b"), nil, w.try); err != nil || strings.Join(w.tried, " ") != "a a" {
		t.Errorf("got %v after %v, want the ordinary retry", err, w.tried)
	}
}

func TestWalk_CountsFallbacks(t *testing.T) {
	w := newWorld(script{"b": {failing(vendors.Denied)}}, HealthOptions{}, 0)
	p := plan("a", "b", "c")
	p.Candidates[0].Drop, p.Candidates[0].Wait = routing.DropVendorPaused, time.Minute
	if _, err := w.Walk(t.Context(), p, nil, w.try); err != nil {
		t.Fatal(err)
	}
	for _, move := range [][3]string{{"a", "b", "cooldown"}, {"b", "c", "denied"}} {
		if got := testutil.ToFloat64(w.metrics.fallbacks.WithLabelValues(move[:]...)); got != 1 {
			t.Errorf("fallback %v counted %v times, want 1", move, got)
		}
	}
}

func TestHealth_BreakerOpensProbesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := slices.Repeat([]error{failing(vendors.Unavailable)}, 6)
		w := newWorld(script{"a": down}, HealthOptions{Threshold: 5, Cooldown: 30 * time.Second}, 0)
		for range 3 { // two attempts each; the fifth failure opens the circuit, so the third walk cannot retry
			_, _ = w.Walk(t.Context(), plan("a"), nil, w.try)
		}
		if len(w.tried) != 5 || !w.health.CircuitOpen(vendors.OpenAI, "a") {
			t.Fatalf("after %d attempts the circuit is open: %v", len(w.tried), w.health.CircuitOpen(vendors.OpenAI, "a"))
		}
		time.Sleep(30 * time.Second)
		probe, first := w.health.Begin(vendors.OpenAI, "a")
		if _, second := w.health.Begin(vendors.OpenAI, "a"); !first || second {
			t.Fatal("the cooldown must grant one probe and no second")
		}
		// Calls that began before the circuit opened end only now: they neither free the probe's place, nor close the
		// circuit, nor prolong the cooldown.
		w.health.Unjudged(vendors.OpenAI, "a", 0)
		w.health.Failed(vendors.OpenAI, "a", 0)
		w.health.Succeeded(vendors.OpenAI, "a", 0)
		if _, second := w.health.Begin(vendors.OpenAI, "a"); second || !w.health.CircuitOpen(vendors.OpenAI, "a") {
			t.Fatal("an old call's end let a second probe in")
		}
		w.health.Failed(vendors.OpenAI, "a", probe)
		if !w.health.CircuitOpen(vendors.OpenAI, "a") {
			t.Fatal("a failed probe must open the circuit again")
		}
		time.Sleep(29 * time.Second)
		w.health.Failed(vendors.OpenAI, "a", 0)
		time.Sleep(time.Second)
		w.script = nil
		if _, err := w.Walk(t.Context(), plan("a"), nil, w.try); err != nil {
			t.Fatalf("the probe: %v", err)
		}
		if w.health.CircuitOpen(vendors.OpenAI, "a") || testutil.ToFloat64(w.metrics.circuit.WithLabelValues(vendors.OpenAI, "a")) != 0 {
			t.Error("a probe that succeeded must close the circuit")
		}
	})
}

func TestHealth_AProbeThatPanicsOrIsGivenUpFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(script{"a": {failing(vendors.Unavailable)}}, HealthOptions{Threshold: 1, Cooldown: time.Second}, 0)
		_, _ = w.Walk(t.Context(), plan("a"), nil, w.try)
		time.Sleep(time.Second)
		func() {
			defer func() { _ = recover() }()
			_, _ = w.Walk(t.Context(), plan("a"), nil, func(context.Context, *Attempt) error { panic("a bug") })
		}()
		turn, leave := w.health.Begin(vendors.OpenAI, "a")
		if !leave {
			t.Fatal("no probe after the one that panicked")
		}
		w.health.Unjudged(vendors.OpenAI, "a", turn)
		if _, err := w.Walk(t.Context(), plan("a"), nil, w.try); err != nil {
			t.Errorf("no probe after the one that was given up: %v", err)
		}
	})
}

func TestHealth_OthersFaultsDoNotBreak(t *testing.T) {
	for _, kind := range []vendors.Kind{vendors.Invalid, vendors.Canceled, vendors.Denied, vendors.RateLimited, vendors.Blocked, vendors.Overflow} {
		if status.Judge(kind).Breaks {
			t.Errorf("%v counts against the breaker", kind)
		}
	}
}
