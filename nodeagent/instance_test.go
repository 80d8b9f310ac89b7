package nodeagent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestInstance sends one id with every call, and another one from every agent.
func TestInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &gateway{}, nil)
		wait(time.Minute)
		w.end()
		first := ""
		for _, c := range w.gateway.take() {
			if c.what == "vet" {
				continue
			}
			if first == "" {
				first = c.instance
			}
			if len(c.instance) != 2*instanceBytes || c.instance != first {
				t.Errorf("%s with the instance %q, the first was %q", c.what, c.instance, first)
			}
		}
		w = start(t, &gateway{}, nil)
		wait(time.Second)
		if second := w.gateway.take()[1].instance; second == first {
			t.Errorf("two runs are both %q", second)
		}
		w.end()
	})
}

func replaced(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
	return nil, connect.NewError(connect.CodeFailedPrecondition, `another agent has registered node "n" since: stop one of the two`)
}

// TestReplaced leaves the node to the other agent for minutes, not seconds.
func TestReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		w := start(t, g, nil)
		wait(time.Minute)
		g.set(func() { g.beat = replaced })
		wait(DefaultInterval)
		g.take()
		wait(refusedPause * (100 - 100*jitter - 5) / 100)
		if got := names(g.take()); got != "" {
			t.Errorf("calls of an agent that was replaced: %s", got)
		}
		said := `another agent has registered node \"n\" since: stop one of the two`
		if log := w.log.String(); !strings.Contains(log, `level=ERROR msg="`+said) {
			t.Errorf("the log does not say %q as an error", said)
		}
		g.set(func() { g.beat = nil })
		wait(refusedPause)
		if got := names(g.take()); got != "vet register beat" {
			t.Errorf("calls after the pause: %s", got)
		}
		w.end()
	})
}

// TestReplacedAndStopped leaves at once, and takes nothing from the other agent.
func TestReplacedAndStopped(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := &gateway{}
			w := start(t, g, nil)
			wait(time.Minute)
			g.set(func() { g.beat = replaced })
			if before {
				wait(time.Minute)
			}
			g.take()
			began := time.Now()
			w.end()
			if took := time.Since(began); took > 0 {
				t.Errorf("replaced before the signal %v: left after %s", before, took)
			}
			if got := names(g.take()); strings.Contains(got, "unregister") {
				t.Errorf("replaced before the signal %v: calls %s", before, got)
			}
		})
	}
}
