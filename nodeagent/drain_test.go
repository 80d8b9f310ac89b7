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
			SweepInterval, SweepInterval + drainPoll, "draining unregister"},
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
		}, 20*time.Second + SweepInterval, 22*time.Second + SweepInterval + drainPoll, "draining unregister"},
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
