package nodeagent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestNoModelLeft takes no requests while an engine that answers has nothing to serve them with.
func TestNoModelLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &gateway{}, nil)
		wait(time.Minute)
		w.gateway.take()
		w.ollama.set(func() { w.ollama.models = map[string]bool{} })
		wait(10 * time.Second)
		calls := w.gateway.take()
		if got := names(calls); got != "draining" || len(calls[0].beat.Models) != 0 {
			t.Errorf("calls without a model: %s, %v", got, calls)
		}
		if !strings.Contains(w.log.String(), "no model to report") {
			t.Error("the log does not say so")
		}
		w.ollama.set(func() { w.ollama.models = map[string]bool{"c:1": true} })
		wait(10 * time.Second)
		calls = w.gateway.take()
		if got := names(calls); got != "beat" || calls[0].beat.Models[0].Id != "c:1" {
			t.Errorf("calls with another model: %s, %v", got, calls)
		}
		w.end()
	})
}

// TestTrouble tells the gateway why the node can serve nothing, in as many words as it takes.
func TestTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &scriptedExposure{address: "https://one/v1", changed: make(chan struct{}, 1)}
		w := start(t, &gateway{}, func(o *Options) { o.Exposure = e })
		want := func(text string) {
			t.Helper()
			wait(15 * time.Second)
			calls := w.gateway.take()
			last := calls[len(calls)-1]
			if last.beat == nil || last.beat.Draining != (text != "") || !strings.HasPrefix(last.beat.Trouble, text) || (text == "" && last.beat.Trouble != "") ||
				len([]rune(last.beat.Trouble)) > 500 {
				t.Errorf("%v, want %q", last.beat, text)
			}
		}
		want("")
		w.ollama.set(func() { w.ollama.down = errors.New("broken " + strings.Repeat("ü", 1000)) })
		want("the engine cannot serve: ")
		w.ollama.set(func() { w.ollama.down, w.ollama.models = nil, map[string]bool{} })
		want("the engine has no model to report")
		w.ollama.set(func() { w.ollama.models = map[string]bool{"a:1": true} })
		want("")
		e.move("")
		want("the tunnel is down")
		e.move("https://one/v1")
		want("")
		w.end()
		calls := w.gateway.take()
		for _, c := range calls {
			if c.beat != nil && c.beat.Trouble != "" {
				t.Errorf("a node that leaves is in trouble: %v", c.beat)
			}
		}
	})
}

// TestOverload stays in the pool while the gateway has too much to do: nobody has to change anything.
func TestOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		w := start(t, g, nil)
		wait(time.Minute)
		g.take()
		g.set(func() {
			g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
				return nil, connect.NewError(connect.CodeResourceExhausted, "too many calls")
			}
		})
		wait(30 * time.Second)
		g.set(func() { g.beat = nil })
		wait(10 * time.Second)
		if got := names(g.take()); got != "beat" {
			t.Errorf("calls: %s", got)
		}
		if !strings.Contains(w.log.String(), "too many calls") {
			t.Error("the log does not say why")
		}
		w.end()
	})
}

// TestHiccupWhileForgotten registers again at once, though the engine missed a question.
func TestHiccupWhileForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		forget := false
		g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
			defer func() { forget = false }()
			return &ktmsv1.HeartbeatResponse{RegisterAgain: forget}, nil
		}
		w := start(t, g, nil)
		wait(61 * time.Second)
		g.take()
		g.set(func() { forget = true })
		w.ollama.set(func() { w.ollama.down = errors.New("hiccup") })
		wait(5 * time.Second)
		calls := g.take()
		if got := names(calls); got != "beat vet register beat" || len(calls[2].reg.Models) != 2 {
			t.Errorf("calls: %s", got)
		}
		w.ollama.set(func() { w.ollama.down = nil })
		w.end()
	})
}

// TestMovedUnheard sends no heartbeat for an address that the gateway does not know.
func TestMovedUnheard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &scriptedExposure{address: "https://one/v1", changed: make(chan struct{}, 1)}
		w := start(t, &gateway{}, func(o *Options) { o.Exposure = e })
		wait(time.Minute)
		w.gateway.take()
		e.mu.Lock()
		e.address = "https://two/v1" // and nothing is received
		e.mu.Unlock()
		wait(5 * time.Second)
		if got := names(w.gateway.take()); !strings.HasPrefix(got, "vet register") {
			t.Errorf("calls: %s", got)
		}
		w.end()
	})
}

// TestEveryTrySaysWhy repeats the reason beside each pause: a log is read from its end.
func TestEveryTrySaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{vet: func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
			return nil, connect.NewError(connect.CodeUnauthenticated, "invalid key")
		}}
		w := start(t, g, nil)
		wait(time.Hour)
		for line := range strings.Lines(w.log.String()) {
			if strings.Contains(line, "trying again") && !strings.Contains(line, "invalid key") {
				t.Fatalf("a line without a reason: %s", line)
			}
		}
		w.end()
	})
}

// TestNoClock holds that the agent tells the gateway no time and learns none, so that a clock that is wrong by any amount
// changes nothing between them. The agent's own clocks are those of synctest, which begin in the year 2000.
func TestNoClock(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.FullName]bool{}
	var look func(m protoreflect.MessageDescriptor)
	look = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if name := string(f.Name()); strings.HasSuffix(name, "_at") || strings.Contains(name, "time") {
				t.Errorf("%s is a time", f.FullName())
			}
			if f.Message() != nil {
				if f.Message().FullName() == "google.protobuf.Timestamp" {
					t.Errorf("%s is a time", f.FullName())
				}
				look(f.Message())
			}
		}
	}
	methods := ktmsv1.File_ktms_v1_node_proto.Services().ByName("NodeRegistryService").Methods()
	for i := range methods.Len() {
		look(methods.Get(i).Input())
		look(methods.Get(i).Output())
	}
	if len(seen) < 10 {
		t.Errorf("only %d messages were looked at", len(seen))
	}
}
