package nodeagent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestRequestsInTheTunnel end before the tunnel does, whatever the gateway says or does not say.
func TestRequestsInTheTunnel(t *testing.T) {
	t.Parallel()
	revoked := connect.NewError(connect.CodeUnauthenticated, "revoked")
	refuse := func(err error, g *gateway) {
		g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) { return nil, err }
		g.vet = func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) { return nil, err }
	}
	for _, c := range []struct {
		name   string
		before time.Duration // from the change to the signal
		change func(*gateway)
	}{
		{"the key was revoked", time.Minute, func(g *gateway) { refuse(revoked, g) }},
		{"the key is revoked during the drain", 0, func(g *gateway) { refuse(revoked, g) }},
		{"the gateway is away", 0, func(g *gateway) { refuse(connect.NewError(connect.CodeUnavailable, "away"), g) }},
		{"the gateway has forgotten the node", 0, func(g *gateway) {
			g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
				return &ktmsv1.HeartbeatResponse{RegisterAgain: true}, nil
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := &scriptedExposure{address: "https://one/v1", inFlight: 1, changed: make(chan struct{}, 1)}
				g := &gateway{}
				w := start(t, g, func(o *Options) { o.Exposure = e })
				wait(time.Minute)
				g.set(func() { c.change(g) })
				wait(c.before)
				w.stop()
				wait(2 * time.Minute)
				e.mu.Lock()
				ended := e.ended
				e.inFlight = 0
				e.mu.Unlock()
				if ended {
					t.Error("the tunnel was closed under a request")
				}
				began := time.Now()
				<-w.stopped
				if took := time.Since(began); took > drainPoll {
					t.Errorf("left %s after the last request", took)
				}
			})
		})
	}
}

// TestRequestWithoutEnd does not hold a node for ever.
func TestRequestWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &scriptedExposure{address: "https://one/v1", inFlight: 1, changed: make(chan struct{}, 1)}
		w := start(t, &gateway{}, func(o *Options) { o.Exposure = e })
		wait(time.Minute)
		began := time.Now()
		w.end()
		if took := time.Since(began); took < drainLimit || took > drainLimit+callTimeout+drainPoll {
			t.Errorf("left after %s", took)
		}
		if got := names(w.gateway.take()); !strings.HasSuffix(got, "draining unregister") {
			t.Errorf("calls: %s", got)
		}
	})
}

// TestStopWhileRegistering leaves in order where the gateway took the node in the meantime.
func TestStopWhileRegistering(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		g.register = func(*ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
			time.Sleep(3 * time.Second)
			return &ktmsv1.RegisterNodeResponse{}, nil
		}
		w := start(t, g, nil)
		wait(time.Second)
		w.end()
		if got := names(g.take()); got != "vet register draining unregister" {
			t.Errorf("calls: %s", got)
		}
	})
}

// TestStopWithoutATunnel leaves at once while the tunnel does not come up.
func TestStopWithoutATunnel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &scriptedExposure{changed: make(chan struct{}, 1)}
		w := start(t, &gateway{}, func(o *Options) { o.Exposure = e })
		wait(time.Hour)
		began := time.Now()
		w.end()
		if took := time.Since(began); took > 0 || !e.ended {
			t.Errorf("took %s; tunnel ended: %v", took, e.ended)
		}
	})
}
