package nodeagent

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/schedule"
)

// paused is an agent with a schedule, whose gateway has a number of requests on it.
type paused struct {
	*world

	mu     sync.Mutex
	rules  *schedule.Schedule
	active int32
}

// startPaused begins with rules for a clock that shows the time since the start; HH:MM are hours and minutes after it.
func startPaused(t *testing.T, g *gateway, rules string, change func(*Options)) *paused {
	t.Helper()
	p := &paused{}
	p.follow(t, rules)
	g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return &ktmsv1.HeartbeatResponse{ActiveProxyRequests: p.active}, nil
	}
	p.world = start(t, g, func(o *Options) {
		o.Schedule = func() *schedule.Schedule {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.rules
		}
		if change != nil {
			change(o)
		}
	})
	return p
}

func (p *paused) follow(t *testing.T, rules string) {
	t.Helper()
	s, err := schedule.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = s
}

func (p *paused) serve(active int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = active
}

// window writes a rule for times after now, in the zone that the agent sees.
func window(from, to time.Duration, level string) string {
	now := time.Now()
	return now.Add(from).Format("15:04") + "-" + now.Add(to).Format("15:04") + " " + level
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPaused(t, &gateway{}, window(time.Hour, 3*time.Hour, "0"), nil)
		p.serve(1)
		wait(time.Hour - time.Second)
		for _, c := range p.gateway.take() {
			if c.beat != nil && c.beat.GetLevelPercent() != 100 {
				t.Fatalf("level %d before the pause", c.beat.GetLevelPercent())
			}
		}
		wait(2 * time.Second) // the switch does not wait for the next heartbeat
		calls := p.gateway.take()
		if last := calls[len(calls)-1]; last.what != "beat" || last.beat.LevelPercent == nil || *last.beat.LevelPercent != 0 {
			t.Errorf("heartbeat at the switch: %v", last.beat)
		}
		wait(time.Minute)
		if moves := p.ollama.take(); moves != "" {
			t.Errorf("with a request on the node: %s", moves)
		}
		p.serve(0)
		wait(time.Minute)
		if moves := p.ollama.take(); moves != "unload a:1" { // b:1 was not in memory
			t.Errorf("after the last request: %q", moves)
		}
		// The owner uses a model during the pause: that is the owner's business.
		p.ollama.set(func() { p.ollama.models["b:1"] = true })
		wait(54*time.Minute + 50*time.Second)
		if moves := p.ollama.take(); moves != "" {
			t.Errorf("in the pause: %s", moves)
		}
		wait(58 * time.Minute)
		if moves := p.ollama.take(); moves != "" {
			t.Errorf("before the warm-up: %s", moves)
		}
		wait(3 * time.Minute)
		if moves := p.ollama.take(); moves != "load a:1" {
			t.Errorf("in the warm-up: %q", moves)
		}
		wait(30 * time.Minute)
		if moves := p.ollama.take(); moves != "" {
			t.Errorf("in the window: %s", moves)
		}
		for _, c := range p.gateway.take() {
			if c.what != "beat" {
				t.Errorf("a pause made a call %s", c.what)
			}
		}
		p.end()
	})
}

// TestPauseEndsAtOnce loads again when an edit of the schedule ends the pause.
func TestPauseEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPaused(t, &gateway{}, "00:00-24:00 0", nil)
		wait(time.Minute)
		if moves := p.ollama.take(); moves != "unload a:1" {
			t.Fatalf("in the pause: %q", moves)
		}
		p.follow(t, "00:00-24:00 50")
		for _, c := range p.gateway.take() {
			if c.reg != nil && (c.reg.LevelPercent == nil || c.reg.GetLevelPercent() != 0) {
				t.Errorf("registered with the level %v", c.reg.LevelPercent)
			}
		}
		wait(2 * time.Second)
		if moves := p.ollama.take(); moves != "load a:1" {
			t.Errorf("after the pause: %q", moves)
		}
		if calls := p.gateway.take(); len(calls) == 0 || calls[len(calls)-1].beat.GetLevelPercent() != 50 {
			t.Errorf("calls after the pause: %v", calls)
		}
		p.end()
	})
}

// TestSlowLoad keeps the heartbeats coming while a model loads.
func TestSlowLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPaused(t, &gateway{}, "00:00-24:00 0", nil)
		wait(time.Minute)
		p.ollama.set(func() { p.ollama.slow = 10 * time.Minute })
		p.ollama.take()
		p.follow(t, "")
		wait(5 * time.Second)
		p.gateway.take()
		wait(5 * time.Minute)
		if n := len(p.gateway.take()); n < 60 {
			t.Errorf("%d heartbeats in five minutes of loading", n)
		}
		wait(6 * time.Minute)
		if moves := p.ollama.take(); moves != "load a:1" {
			t.Errorf("moves: %q", moves)
		}
		p.end()
	})
}

// TestBrokenMove tries again, with a pause.
func TestBrokenMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPaused(t, &gateway{}, "00:00-24:00 0", nil)
		p.ollama.set(func() { p.ollama.broken = true })
		wait(5 * time.Minute)
		moves := p.ollama.take()
		if n := strings.Count(moves, "broken unload a:1"); n < 4 || n > 10 {
			t.Errorf("%d tries in five minutes: %s", n, moves)
		}
		p.ollama.set(func() { p.ollama.broken = false })
		wait(time.Minute)
		if moves := p.ollama.take(); moves != "unload a:1" {
			t.Errorf("moves: %q", moves)
		}
		p.end()
	})
}

// TestNoUnloading leaves the models where they are.
func TestNoUnloading(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		levels bool
		rules  string
		change func(*Options)
	}{
		{"the gateway knows no levels", false, "00:00-24:00 0", nil},
		{"the level is not 0", true, "00:00-24:00 1", nil},
		{"the tunnel has a request", true, "00:00-24:00 0", func(o *Options) {
			o.Exposure = &scriptedExposure{address: "https://x/v1", inFlight: 1, changed: make(chan struct{}, 1)}
		}},
		{"the only models are others", true, "00:00-24:00 0", func(o *Options) { o.Selection = engine.Selection{Only: []string{"b:1"}} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{register: func(*ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
					return &ktmsv1.RegisterNodeResponse{SupportsLevels: c.levels}, nil
				}}
				p := startPaused(t, g, c.rules, c.change)
				wait(5 * time.Minute)
				if moves := p.ollama.take(); moves != "" {
					t.Errorf("moves: %s", moves)
				}
				if warned := strings.Contains(p.log.String(), "does not know load levels"); warned == c.levels {
					t.Errorf("warned: %v", warned)
				}
				p.stop()
				<-p.stopped
			})
		})
	}
}

// TestBeginsInPause loads before the window what the operator named, though nothing was unloaded.
func TestBeginsInPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPaused(t, &gateway{}, window(-time.Hour, time.Hour, "0"), func(o *Options) {
			o.Selection = engine.Selection{Only: []string{"b:1"}}
		})
		wait(54 * time.Minute)
		if moves := p.ollama.take(); moves != "" {
			t.Errorf("in the pause: %s", moves)
		}
		wait(2 * time.Minute)
		if moves := p.ollama.take(); moves != "load b:1" {
			t.Errorf("in the warm-up: %q", moves)
		}
		p.end()
	})
}

// TestHalfAnUnload loads everything again that was unloaded, though a model needed a second try.
func TestHalfAnUnload(t *testing.T) {
	t.Parallel()
	for _, opens := range []string{"after the second try", "before the second try"} {
		t.Run(opens, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := startPaused(t, &gateway{}, "", nil)
				p.ollama.set(func() { p.ollama.models["b:1"], p.ollama.fails = true, map[string]int{"b:1": 500} })
				wait(10 * time.Second)
				p.follow(t, "00:00-24:00 0")
				wait(20 * time.Second)
				if moves := p.ollama.take(); moves != "unload a:1, broken unload b:1" {
					t.Fatalf("in the pause: %q", moves)
				}
				p.ollama.set(func() { p.ollama.fails = nil })
				if opens == "after the second try" {
					wait(time.Minute)
					if moves := p.ollama.take(); moves != "unload b:1" {
						t.Fatalf("the second try: %q", moves)
					}
				}
				p.follow(t, "")
				wait(time.Minute)
				p.ollama.set(func() {
					if !p.ollama.models["a:1"] || !p.ollama.models["b:1"] {
						t.Errorf("in the window: %v, after %v", p.ollama.models, p.ollama.moves)
					}
				})
				p.end()
			})
		})
	}
}

// TestModelDeletedInThePause loads the others, and does not ask for the deleted one for ever.
func TestModelDeletedInThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPaused(t, &gateway{}, "", nil)
		p.ollama.set(func() { p.ollama.models["b:1"] = true })
		wait(10 * time.Second)
		p.follow(t, "00:00-24:00 0")
		wait(time.Minute)
		if moves := p.ollama.take(); moves != "unload a:1, unload b:1" {
			t.Fatalf("in the pause: %q", moves)
		}
		p.ollama.set(func() {
			delete(p.ollama.models, "a:1")
			p.ollama.fails = map[string]int{"a:1": 404}
		})
		p.follow(t, "")
		wait(10 * time.Minute)
		if moves := p.ollama.take(); moves != "broken load a:1, load b:1" {
			t.Errorf("in the window: %q", moves)
		}
		p.end()
	})
}
