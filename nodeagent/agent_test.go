package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
)

// wait lets time pass and everything that it starts come to rest.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// end stops the agent and lets the gateway have nothing more to do with it.
func (w *world) end() {
	w.stop()
	<-w.stopped
}

func TestRegistersAndBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &gateway{}, func(o *Options) { o.Selection = engine.Selection{Judges: []string{"b:1"}} })
		wait(21 * time.Second)
		calls := w.gateway.take()
		if got := names(calls); got != "vet register beat" {
			t.Fatalf("calls: %s", got)
		}
		r := calls[1].reg
		if r.NodeId != "n" || r.Name != "the node" || r.Engine != "ollama" || r.Endpoint != "http://10.0.0.1:11434/v1" || r.AuthToken != "token" ||
			r.BaseWeight != 100 || r.MaxConcurrent != 2 || r.AgentVersion != "1.2.3" || len(r.Models) != 2 {
			t.Errorf("registered %v", r)
		}
		if m := r.Models[0]; m.Id != "a:1" || !m.IsWarm || m.ContextLength != 4096 || len(m.Capabilities) != 0 {
			t.Errorf("first model %v", m)
		}
		if m := r.Models[1]; m.Id != "b:1" || m.IsWarm || len(m.Capabilities) != 1 {
			t.Errorf("second model %v", m)
		}
		for i := range 5 {
			c := calls[2+i]
			if c.after != time.Duration(i)*DefaultInterval {
				t.Errorf("heartbeat %d after %s", i, c.after)
			}
			if c.beat.ActiveRequests != nil || c.beat.QueueDepth != nil || c.beat.LevelPercent != nil || len(c.beat.Models) != 2 {
				t.Errorf("heartbeat %v: Ollama has no load, and there is no schedule", c.beat)
			}
		}
		w.end()
	})
}

// TestInterval follows the gateway, within bounds.
func TestInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		seconds := int32(5)
		g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
			return &ktmsv1.HeartbeatResponse{HeartbeatIntervalSeconds: seconds}, nil
		}
		w := start(t, g, nil)
		for _, c := range []struct {
			says int32
			want time.Duration
		}{{3, 3 * time.Second}, {0, 3 * time.Second}, {-4, 3 * time.Second}, {100000, longestInterval}, {1, time.Second}} {
			g.set(func() { seconds = c.says })
			wait(2 * longestInterval) // the new figure has arrived
			g.take()
			wait(4 * longestInterval)
			calls := g.take()
			if got := calls[2].after - calls[1].after; got != c.want {
				t.Errorf("told %d: every %s, want %s", c.says, got, c.want)
			}
		}
		w.end()
	})
}

// TestRefused never ends the agent: it says why, and asks again after a pause that grows to five minutes.
func TestRefused(t *testing.T) {
	t.Parallel()
	refusal := connect.NewError(connect.CodePermissionDenied, `key belongs to node "x"`)
	none := &ktmsv1.VetModelsResponse{Verdicts: []*ktmsv1.ModelVerdict{{Model: "a:1", Reason: `model "a:1" not permitted for this node key`}, {Model: "b:1"}}}
	for _, c := range []struct {
		name   string
		script func(*gateway)
		said   string
		calls  string
	}{
		{"the check is refused", func(g *gateway) {
			g.vet = func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) { return nil, refusal }
		}, "A key is bound to one machine", "vet"},
		{"no model is allowed", func(g *gateway) {
			g.vet = func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) { return none, nil }
		}, `model \"a:1\" not permitted for this node key; model b:1 is not permitted`, "vet"},
		{"the registration is refused", func(g *gateway) {
			g.register = func(*ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) { return nil, refusal }
		}, "A key is bound to one machine", "vet register"},
		{"the key is wrong", func(g *gateway) {
			g.vet = func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
				return nil, connect.NewError(connect.CodeUnauthenticated, "invalid key")
			}
		}, "does not accept the node key", "vet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				c.script(g)
				exposure := &scriptedExposure{changed: make(chan struct{}, 1)}
				w := start(t, g, func(o *Options) {
					if c.calls == "vet" {
						o.Exposure = exposure
					}
				})
				wait(time.Hour)
				var tries []time.Duration
				calls := g.take()
				for _, call := range calls {
					if call.what == "vet" {
						tries = append(tries, call.after)
					}
					if !strings.Contains(c.calls, call.what) {
						t.Errorf("call %s", call.what)
					}
				}
				if first := tries[1] - tries[0]; first < 4*time.Second || first > 5*time.Second {
					t.Errorf("first pause %s", first)
				}
				if last := tries[len(tries)-1] - tries[len(tries)-2]; last < 4*time.Minute || last > 5*time.Minute {
					t.Errorf("last pause %s", last)
				}
				if !strings.Contains(w.log.String(), c.said) {
					t.Errorf("the log does not say %q", c.said)
				}
				if exposure.ran {
					t.Error("a refused agent opened a tunnel")
				}
				g.set(func() { g.vet, g.register = nil, nil })
				exposure.move("https://x")
				wait(5 * time.Minute)
				if got := names(g.take()); !strings.HasPrefix(got, "vet register beat") {
					t.Errorf("calls when the gateway agrees: %s", got)
				}
				w.end()
				if names(g.take()) == "" {
					t.Error("a registered node did not drain")
				}
			})
		})
	}
}

// TestOldGateway registers with a gateway that cannot vet.
func TestOldGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{vet: func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
			return nil, connect.NewError(connect.CodeUnimplemented, "no")
		}}
		w := start(t, g, nil)
		wait(time.Second)
		if got := names(g.take()); got != "vet register beat" {
			t.Errorf("calls: %s", got)
		}
		w.end()
	})
}

// TestForgotten registers again when the gateway does not know the node, but not without end.
func TestForgotten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		resp *ktmsv1.HeartbeatResponse
		err  error
	}{
		{"told", &ktmsv1.HeartbeatResponse{RegisterAgain: true}, nil},
		{"not found", nil, connect.NewError(connect.CodeNotFound, "node n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				forgets := 0
				g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
					if forgets > 0 {
						forgets--
						return c.resp, c.err
					}
					return &ktmsv1.HeartbeatResponse{}, nil
				}
				w := start(t, g, nil)
				wait(time.Minute)
				g.take()
				g.set(func() { forgets = 1 })
				wait(6 * time.Second)
				if got := names(g.take()); got != "beat vet register beat" {
					t.Errorf("calls: %s", got)
				}
				g.set(func() { forgets = 1 << 30 })
				g.take()
				wait(time.Hour)
				if n := len(g.take()); n > 3*3600/20 {
					t.Errorf("%d calls in an hour to a gateway that always forgets", n)
				}
				w.end()
			})
		})
	}
}

// TestGatewayAway keeps the pace for a minute, so that a gateway that restarts finds its nodes, and then slows down.
func TestGatewayAway(t *testing.T) {
	t.Parallel()
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprint("hanging ", hang), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				w := start(t, g, nil)
				wait(time.Minute)
				g.take()
				g.set(func() {
					g.hang = hang
					g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
						return nil, connect.NewError(connect.CodeUnavailable, "restarting")
					}
				})
				wait(time.Minute)
				if n := len(g.take()); n < 10 || n > 13 {
					t.Errorf("%d heartbeats in the first minute", n)
				}
				wait(10 * time.Minute)
				g.take()
				wait(time.Hour)
				if n := len(g.take()); n < 100 || n > 121 {
					t.Errorf("%d heartbeats in an hour", n)
				}
				g.set(func() { g.hang, g.beat = false, nil })
				wait(awayPause + callTimeout)
				if got := names(g.take()); got != "beat" {
					t.Errorf("calls when it is back: %q", got)
				}
				w.end()
			})
		})
	}
}

// TestKeyRevoked goes back to asking when a heartbeat is refused.
func TestKeyRevoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		w := start(t, g, nil)
		wait(time.Minute)
		g.take()
		revoked := connect.NewError(connect.CodeUnauthenticated, "revoked")
		g.set(func() {
			g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) { return nil, revoked }
			g.vet = func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) { return nil, revoked }
		})
		wait(time.Hour)
		if got := names(g.take()); got != "beat vet" {
			t.Errorf("calls: %s", got)
		}
		w.end()
		if got := names(g.take()); got != "" {
			t.Errorf("calls of an agent that nobody knows: %s", got)
		}
	})
}

// TestEngine tells the gateway to send nothing while the engine is down, but not for a hiccup.
func TestEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &gateway{}, nil)
		wait(11 * time.Second)
		w.gateway.take()
		w.ollama.set(func() { w.ollama.down = errors.New("hiccup") })
		wait(10 * time.Second)
		w.ollama.set(func() { w.ollama.down = nil })
		wait(10 * time.Second)
		calls := w.gateway.take()
		if got := names(calls); got != "beat" {
			t.Errorf("calls around a hiccup: %s", got)
		}
		for _, c := range calls {
			if len(c.beat.Models) != 2 {
				t.Errorf("a hiccup took the models away: %v", c.beat)
			}
		}
		w.ollama.set(func() { w.ollama.down = os.NewSyscallError("connect", syscall.ECONNREFUSED) })
		wait(10 * time.Second)
		if got := names(w.gateway.take()); got != "draining" {
			t.Errorf("calls without an engine: %s", got)
		}
		w.ollama.set(func() { w.ollama.down = errors.New("slow to start") })
		wait(10 * time.Second)
		w.ollama.set(func() { w.ollama.down = nil })
		w.gateway.take()
		wait(10 * time.Second)
		if got := names(w.gateway.take()); got != "beat" {
			t.Errorf("calls with the engine back: %s", got)
		}
		w.ollama.set(func() { w.ollama.down = &engine.NotReadyError{Text: "Loading model"} })
		wait(5 * time.Second)
		if got := names(w.gateway.take()); got != "draining" {
			t.Errorf("calls while the engine says that it is not ready: %s", got)
		}
		w.end()
	})
}

// TestNoEngine waits for the engine before it asks the gateway for anything.
func TestNoEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &gateway{}, func(o *Options) { o.Selection.Only = []string{"c:1"} })
		wait(time.Hour)
		if got := names(w.gateway.take()); got != "" {
			t.Errorf("calls without a model: %s", got)
		}
		if !strings.Contains(w.log.String(), "no model to report: it lacks c:1") {
			t.Error("the log does not say what is missing")
		}
		w.ollama.set(func() { w.ollama.models["c:1"] = false })
		wait(enginePause)
		if got := names(w.gateway.take()); got != "vet register beat" {
			t.Errorf("calls with the model: %s", got)
		}
		w.end()
	})
}
