package nodeagent

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	away := connect.NewError(connect.CodeUnavailable, "away")
	for _, c := range []struct {
		name string
		beat func(since time.Duration) (*ktmsv1.HeartbeatResponse, error)
		// the agent leaves within these times, with these calls
		least, most time.Duration
		calls       string
	}{
		{"idle", func(time.Duration) (*ktmsv1.HeartbeatResponse, error) { return &ktmsv1.HeartbeatResponse{}, nil },
			DefaultSweep, DefaultSweep + drainPoll, "draining unregister"},
		{"busy", func(since time.Duration) (*ktmsv1.HeartbeatResponse, error) {
			if since < time.Minute {
				return &ktmsv1.HeartbeatResponse{ActiveProxyRequests: 1}, nil
			}
			return &ktmsv1.HeartbeatResponse{}, nil
		}, time.Minute, time.Minute + drainPoll, "draining unregister"},
		{"busy without end", func(time.Duration) (*ktmsv1.HeartbeatResponse, error) {
			return &ktmsv1.HeartbeatResponse{ActiveProxyRequests: 1}, nil
		}, drainLimit, drainLimit + drainPoll, "draining unregister"},
		{"a request comes within the sweep", func(since time.Duration) (*ktmsv1.HeartbeatResponse, error) {
			if since > 10*time.Second && since < 20*time.Second {
				return &ktmsv1.HeartbeatResponse{ActiveProxyRequests: 1}, nil
			}
			return &ktmsv1.HeartbeatResponse{}, nil
		}, 20 * time.Second, 20*time.Second + drainPoll, "draining unregister"},
		{"the gateway restarts", func(since time.Duration) (*ktmsv1.HeartbeatResponse, error) {
			if since < 20*time.Second {
				return nil, away
			}
			return &ktmsv1.HeartbeatResponse{}, nil
		}, 20*time.Second + DefaultSweep, 22*time.Second + DefaultSweep + drainPoll, "draining unregister"},
		{"the gateway is away", func(time.Duration) (*ktmsv1.HeartbeatResponse, error) { return nil, away },
			drainAway, drainAway + drainPoll, "draining"},
		{"the gateway has forgotten the node", func(time.Duration) (*ktmsv1.HeartbeatResponse, error) {
			return &ktmsv1.HeartbeatResponse{RegisterAgain: true}, nil
		}, 0, 0, "draining"},
		{"the key is revoked", func(time.Duration) (*ktmsv1.HeartbeatResponse, error) {
			return nil, connect.NewError(connect.CodeUnauthenticated, "revoked")
		}, 0, 0, "draining"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				w := start(t, g, nil)
				wait(time.Minute)
				g.take()
				began := time.Now()
				g.set(func() {
					g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) { return c.beat(time.Since(began)) }
				})
				w.end()
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("left after %s, want %s to %s", took, c.least, c.most)
				}
				if got := names(g.take()); got != c.calls {
					t.Errorf("calls: %s, want %s", got, c.calls)
				}
			})
		})
	}
}

// TestDrainWaitsForTheSweep of the gateway, and says how long that is.
func TestDrainWaitsForTheSweep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says int32
		want time.Duration
	}{{0, DefaultSweep}, {5, 5 * time.Second}, {60, time.Minute}, {1 << 30, longestSweep}, {-1, DefaultSweep}} {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{register: func(*ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
				return &ktmsv1.RegisterNodeResponse{SweepIntervalSeconds: c.says}, nil
			}}
			w := start(t, g, nil)
			wait(time.Minute)
			began := time.Now()
			w.end()
			if took := time.Since(began); took < c.want || took > c.want+drainPoll {
				t.Errorf("told %d: left after %s, want %s", c.says, took, c.want)
			}
			if said := "leaving in " + c.want.String() + " at least, when the last request is done"; !strings.Contains(w.log.String(), said) {
				t.Errorf("told %d: the log does not say %q", c.says, said)
			}
		})
	}
}

// TestHurry cuts the drain short, and unregisters all the same.
func TestHurry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		hang   bool
		within time.Duration
	}{{"the gateway answers", false, 0}, {"the gateway hangs", true, hurryTimeout}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := &scriptedExposure{address: "https://one/v1", inFlight: 1, changed: make(chan struct{}, 1)}
				hurry := make(chan struct{})
				w := start(t, &gateway{}, func(o *Options) { o.Exposure, o.Hurry = e, hurry })
				wait(time.Minute)
				w.stop()
				wait(time.Minute + time.Second)
				w.gateway.take()
				w.gateway.set(func() { w.gateway.hang = c.hang })
				wait(drainPoll)
				began := time.Now()
				close(hurry)
				<-w.stopped
				if took := time.Since(began); took > c.within {
					t.Errorf("left after %s", took)
				}
				if got := names(w.gateway.take()); got != "draining unregister" || !e.ended {
					t.Errorf("calls: %s; tunnel closed: %v", got, e.ended)
				}
			})
		})
	}
}

// TestStopBeforeJoining leaves at once.
func TestStopBeforeJoining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{hang: true}
		w := start(t, g, nil)
		wait(time.Second)
		began := time.Now()
		w.end()
		if took := time.Since(began); took > callTimeout {
			t.Errorf("took %s", took)
		}
		if got := names(g.take()); got != "vet" {
			t.Errorf("calls: %s", got)
		}
	})
}

// scriptedExposure has the address that the test gives it.
type scriptedExposure struct {
	mu       sync.Mutex
	address  string
	inFlight int
	ran      bool
	ended    bool
	changed  chan struct{}
}

func (e *scriptedExposure) Run(ctx context.Context) {
	e.mu.Lock()
	e.ran = true
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
}

func (e *scriptedExposure) Address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.address
}

func (e *scriptedExposure) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inFlight
}

func (e *scriptedExposure) Changed() <-chan struct{} { return e.changed }
func (e *scriptedExposure) Token() string            { return "access" }

func (e *scriptedExposure) move(address string) {
	e.mu.Lock()
	e.address = address
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func TestExposure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &scriptedExposure{changed: make(chan struct{}, 1)}
		w := start(t, &gateway{}, func(o *Options) { o.Exposure = e })
		wait(time.Minute)
		if got := names(w.gateway.take()); got != "vet" || !e.ran {
			t.Fatalf("calls without an address: %s; tunnel opened: %v", got, e.ran)
		}
		e.move("https://one/v1")
		wait(6 * time.Second)
		calls := w.gateway.take()
		if got := names(calls); got != "register beat" || calls[0].reg.Endpoint != "https://one/v1" || calls[0].reg.AuthToken != "access" {
			t.Errorf("calls with an address: %s, registered %v", got, calls[0].reg)
		}
		e.move("") // the tunnel is down: the gateway must not dial it
		wait(time.Second)
		if got := names(w.gateway.take()); got != "draining" {
			t.Errorf("calls without a tunnel: %s", got)
		}
		e.move("https://two/v1")
		wait(time.Second)
		calls = w.gateway.take()
		if got := names(calls); got != "vet register beat" || calls[1].reg.Endpoint != "https://two/v1" {
			t.Errorf("calls with the new address: %s", got)
		}
		e.mu.Lock()
		e.inFlight = 1
		e.mu.Unlock()
		w.stop()
		wait(time.Minute)
		if got := names(w.gateway.take()); got != "draining" || e.ended {
			t.Errorf("calls with a request in the tunnel: %s; tunnel closed: %v", got, e.ended)
		}
		e.mu.Lock()
		e.inFlight = 0
		e.mu.Unlock()
		<-w.stopped
		if got := names(w.gateway.take()); !strings.HasSuffix(got, "unregister") || !e.ended {
			t.Errorf("calls at the end: %s; tunnel closed: %v", got, e.ended)
		}
	})
}
