package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// hangs is the timeout of clients whose server hangs. On a busy machine one that does not may miss it, too.
const hangs = 2 * time.Second

// outage is a server of the test's own, and a client whose rests last until the test says so.
type outage struct {
	*testing.T
	*Client
	server *pooltest.RedisServer
	rests  *pooltest.Clock
	failed tally
	log    logged
	ids    atomic.Int64
}

// logged collects what a client logs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newOutage(t *testing.T, timeout time.Duration) *outage {
	server := pooltest.StartRedis(t)
	return newOutageAt(t, server, server.Addr, timeout)
}

// newOutageAt has a client that finds its server at an address.
func newOutageAt(t *testing.T, server *pooltest.RedisServer, addr string, timeout time.Duration) *outage {
	o := &outage{T: t, server: server, rests: pooltest.NewClock(time.Unix(0, 0))}
	o.Client = open(t, Options{Addr: addr, Timeout: timeout, Failed: o.failed.add, Log: slog.New(slog.NewJSONHandler(&o.log, nil))})
	o.guard = newGuard(o.rests.Now)
	return o
}

// admit makes one call of its own id.
func (o *outage) admit(ctx context.Context) error {
	id := pool.ID("attempt-" + strconv.FormatInt(o.ids.Add(1), 10))
	_, err := o.Meter().Admit(ctx, id, time.Minute, []pool.Charge{requests(), spend(1)})
	return err
}

// works holds that calls are served, from the first probe on if there was a rest.
func (o *outage) works() {
	o.Helper()
	eventually(o, "calls are served", func() bool {
		o.rests.Advance(rest)
		return o.admit(o.Context()) == nil
	})
}

// fails makes calls until Redis is left alone: three, each of which fails by itself.
func (o *outage) fails() {
	o.Helper()
	before := o.failed.of("admit")
	for n := range restAfter {
		if err := o.admit(o.Context()); !errors.Is(err, pool.ErrUnavailable) || errors.Is(err, errResting) {
			o.Fatalf("call %d: %v, want a failure of its own", n, err)
		}
	}
	if failed := o.failed.of("admit") - before; failed != restAfter {
		o.Fatalf("%d failures are counted of %d", failed, restAfter)
	}
	o.isLeftAlone()
}

// isLeftAlone holds that calls fail without being tried.
func (o *outage) isLeftAlone() {
	o.Helper()
	before := o.failed.of("admit")
	for range 10 {
		if err := o.admit(o.Context()); !errors.Is(err, errResting) || !errors.Is(err, pool.ErrUnavailable) {
			o.Fatalf("%v, want that Redis is left alone", err)
		}
	}
	if failed := o.failed.of("admit"); failed != before {
		o.Fatalf("%d calls that were not tried are counted as failures", failed-before)
	}
}

// probeFails lets one call find that nothing has changed.
func (o *outage) probeFails() {
	o.Helper()
	o.rests.Advance(rest)
	if err := o.admit(o.Context()); !errors.Is(err, pool.ErrUnavailable) || errors.Is(err, errResting) {
		o.Fatalf("%v, want a failed probe", err)
	}
	o.isLeftAlone()
}

// comesBack holds that Redis is found again, and that this is said once.
func (o *outage) comesBack() {
	o.Helper()
	o.works()
	for _, said := range []string{"does not answer", `"every":"2s"`, "answers again"} {
		if n := strings.Count(o.log.String(), said); n != 1 {
			o.Errorf("%q was logged %d times: %s", said, n, o.log.String())
		}
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	o := newOutage(t, hangs)
	o.works()
	o.server.Stop()
	o.fails()
	o.probeFails()
	o.server.Start(t)
	o.comesBack()
}

func TestPaused(t *testing.T) {
	t.Parallel()
	o := newOutage(t, hangs)
	o.works()
	o.server.Pause(t)
	o.fails()
	o.probeFails() // on a connection that is taken by the kernel and never answered
	o.server.Resume(t)
	o.comesBack()
}

// TestPausedUnderLoad has more calls under way than a connection has places in its queue.
func TestPausedUnderLoad(t *testing.T) {
	t.Parallel()
	const calls = 5000
	o := newOutage(t, hangs)
	o.works()
	o.server.Pause(t)
	var all sync.WaitGroup
	started := time.Now()
	for range calls {
		all.Go(func() {
			if err := o.admit(t.Context()); !errors.Is(err, pool.ErrUnavailable) {
				t.Errorf("%v, want that Redis is unavailable", err)
			}
		})
	}
	all.Wait()
	if took := time.Since(started); took > hangs+patience {
		t.Errorf("the calls took %v, want one timeout of %v", took, hangs)
	}
	o.isLeftAlone()
	o.probeFails()
	o.server.Resume(t)
	o.comesBack()
}

func TestRestartedUnderLoad(t *testing.T) {
	t.Parallel()
	server, failed := pooltest.StartRedis(t), tally{}
	meter := open(t, Options{Addr: server.Addr, Timeout: hangs, Failed: failed.add}).Meter()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var served atomic.Int64
	for worker := range 8 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := pool.ID(fmt.Sprint(worker, "-", n))
				switch _, err := meter.Admit(ctx, id, time.Minute, []pool.Charge{requests(), spend(1)}); {
				case err == nil:
					served.Add(1)
				case ctx.Err() == nil && !errors.Is(err, pool.ErrUnavailable):
					t.Error(err)
				default: // calls that are not tried come back at once
					select {
					case <-ctx.Done():
					case <-time.After(5 * time.Millisecond):
					}
				}
			}
		})
	}
	for range 2 {
		eventually(t, "calls are served", func() bool { return served.Load() > 100 })
		before := failed.of("admit")
		server.Stop()
		eventually(t, "calls fail", func() bool { return failed.of("admit") >= before+restAfter })
		server.Start(t)
		served.Store(0)
	}
	eventually(t, "calls are served again, by themselves", func() bool { return served.Load() > 100 })
}

func TestStartsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := pooltest.StartRedis(t)
	server.Stop()
	var log logged
	meter := open(t, Options{Addr: server.Addr, Timeout: hangs, Log: slog.New(slog.NewTextHandler(&log, nil))}).Meter()
	eventually(t, "it is said without a call", func() bool { return strings.Contains(log.String(), "cannot be reached yet") })
	if _, err := meter.Read(t.Context(), []pool.Charge{spend(0)}); !errors.Is(err, pool.ErrUnavailable) {
		t.Fatalf("%v, want that Redis is unavailable", err)
	}
	server.Start(t)
	eventually(t, "Redis is found", func() bool {
		_, err := meter.Read(t.Context(), []pool.Charge{spend(0)})
		return err == nil
	})
}

// TestConnectionsAreDropped drops the connections while calls are under way, as a proxy does with old ones. It is one
// failure, after which Redis is not left alone.
func TestConnectionsAreDropped(t *testing.T) {
	t.Parallel()
	const calls = 20
	o := newOutage(t, patience)
	o.works()
	for range restAfter {
		o.server.Pause(t)
		var all sync.WaitGroup
		started := make(chan struct{}, calls)
		for range calls {
			all.Go(func() {
				started <- struct{}{}
				if err := o.admit(t.Context()); errors.Is(err, errResting) {
					t.Error(err)
				}
			})
		}
		for range calls {
			<-started
		}
		killing := make(chan error, 1)
		go func() {
			_, err := pooltest.Command(o.server.Addr, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			killing <- err
		}()
		o.server.Resume(t)
		if err := <-killing; err != nil {
			t.Fatal(err)
		}
		all.Wait()
		eventually(t, "calls are served", func() bool { return o.admit(t.Context()) == nil })
	}
	if strings.Contains(o.log.String(), "does not answer") {
		t.Error(o.log.String())
	}
}

// TestScriptsFlushedUnderLoad makes Redis forget the scripts over and over, which no call may notice.
func TestScriptsFlushedUnderLoad(t *testing.T) {
	const workers, calls = 8, 200
	server := pooltest.StartRedis(t)
	meter := open(t, Options{Addr: server.Addr, Timeout: patience}).Meter()
	ctx, stop := context.WithCancel(t.Context())
	var flushing, calling sync.WaitGroup
	var flushed atomic.Int64
	flushing.Go(func() {
		for ctx.Err() == nil {
			if _, err := pooltest.Command(server.Addr, "SCRIPT", "FLUSH"); err != nil {
				t.Error(err)
				return
			}
			flushed.Add(1)
		}
	})
	for worker := range workers {
		calling.Go(func() {
			for n := range calls {
				id := pool.ID(fmt.Sprint(worker, "-", n))
				bookings, err := meter.Admit(ctx, id, time.Minute, []pool.Charge{requests(), spend(10)})
				if err != nil {
					t.Error(err)
					return
				}
				if err := meter.Settle(ctx, id, []pool.Actual{{Booking: bookings[1], Came: 7}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	calling.Wait()
	stop()
	flushing.Wait()
	if got := settled(t, meter, spend(0)); got != workers*calls*7 {
		t.Errorf("%d are settled, want %d", got, workers*calls*7)
	}
	if flushed.Load() < 10 {
		t.Errorf("the scripts were flushed only %d times", flushed.Load())
	}
}

// TestCallersWhoLeave holds that a caller who gives up is served at once, and says nothing about Redis.
func TestCallersWhoLeave(t *testing.T) {
	server, failed := pooltest.StartRedis(t), tally{}
	client := open(t, Options{Addr: server.Addr, Timeout: patience, Failed: failed.add})
	meter := client.Meter()
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, call := range map[string]func(context.Context) error{
		"admit": func(ctx context.Context) error {
			_, err := meter.Admit(ctx, "a", time.Minute, []pool.Charge{spend(1)})
			return err
		},
		"settle": func(ctx context.Context) error { return meter.Settle(ctx, "a", nil) },
		"renew":  func(ctx context.Context) error { return meter.Renew(ctx, nil, time.Minute) },
		"debit":  func(ctx context.Context) error { return meter.Debit(ctx, "a", []pool.Charge{spend(1)}) },
		"read":   func(ctx context.Context) error { _, err := meter.Read(ctx, []pool.Charge{spend(1)}); return err },
	} {
		if err := call(left); err != context.Canceled {
			t.Errorf("%s by somebody who has left: %v", name, err)
		}
	}
	if got := settled(t, meter, spend(0)); got != 0 {
		t.Errorf("%d are settled by somebody who had left", got)
	}

	server.Pause(t)
	var all sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	for n := range 100 {
		all.Go(func() {
			err := meter.Debit(ctx, pool.ID("debit-"+strconv.Itoa(n)), []pool.Charge{spend(1)})
			if err != context.Canceled {
				t.Errorf("a caller who left was told %v", err)
			}
		})
	}
	leave()
	all.Wait()
	server.Resume(t)
	settled(t, meter, spend(0))
	if n := failed.of("debit"); n != 0 {
		t.Errorf("%d callers who left are counted as failures of Redis", n)
	}
}

// TestErrorReplies holds that a Redis that answers with an error is as good as none.
func TestErrorReplies(t *testing.T) {
	for name, trouble := range map[string]struct{ begin, end []string }{
		"out of memory": {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		"a replica":     {[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t, patience)
			o.works()
			ask := func(words []string) {
				if _, err := pooltest.Command(o.server.Addr, words...); err != nil {
					t.Fatal(err)
				}
			}
			ask(trouble.begin)
			o.fails()
			o.probeFails()
			ask(trouble.end)
			o.comesBack()
			// Nothing of the calls that failed is there, not even in part.
			standings, err := o.Meter().Read(t.Context(), []pool.Charge{spend(0)})
			if err != nil || standings[0].Reserved != 2 {
				t.Errorf("%+v reserved, %v; want those of the 2 calls that worked", standings, err)
			}
		})
	}
}
