package noderegistry

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

type counts = map[ktmsv1.NodeState]int

// watched is a Watch whose reports are kept.
type watched struct {
	*Watch
	changes []string
	counted []counts
}

func (w *world) watch() *watched {
	out := &watched{}
	out.Watch = NewWatch(WatchOptions{Nodes: w.nodes, Every: time.Hour, TTL: ttl, Log: w.options.Log,
		Changed: func(id string, from, to ktmsv1.NodeState) {
			out.changes = append(out.changes, fmt.Sprintf("%s %s %s", id, StateName(from), StateName(to)))
		},
		Counted: func(c counts) { out.counted = append(out.counted, c) },
	})
	return out
}

// want holds the changes since the last time to a list, and the last count to counts.
func (w *watched) want(t *testing.T, count counts, changes ...string) {
	t.Helper()
	if !reflect.DeepEqual(w.changes, changes) {
		t.Errorf("changes %q, want %q", w.changes, changes)
	}
	if last := w.counted[len(w.counted)-1]; !reflect.DeepEqual(last, count) {
		t.Errorf("counted %v, want %v", last, count)
	}
	w.changes = nil
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	watch := w.watch()
	look := func() { watch.look(t.Context()) }
	look()
	watch.want(t, counts{})

	w.register(t)
	look()
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_HEALTHY: 1}, "mac absent healthy")
	look()
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_HEALTHY: 1})

	if _, err := w.RegisterNode(as(t, "linux"), registration(func(r *ktmsv1.RegisterNodeRequest) { r.NodeId = "linux" })); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Heartbeat(as(t, "mac"), &ktmsv1.HeartbeatRequest{NodeId: "mac", Trouble: "the engine is down"}); err != nil {
		t.Fatal(err)
	}
	look()
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_HEALTHY: 1, ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN: 1}, "linux absent healthy", "mac healthy circuit_broken")
	if !strings.Contains(w.log.String(), `reason="the engine is down"`) {
		t.Errorf("the log lacks why: %s", w.log.String())
	}

	w.now = w.now.Add(ttl + time.Second)
	look()
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_OFFLINE: 2}, "linux healthy offline", "mac circuit_broken offline")
	w.log.Reset()
	w.now = w.now.Add(time.Second)
	look()
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_OFFLINE: 2})
	if w.log.Len() > 0 {
		t.Errorf("logged %s, though only the reason changed", w.log.String())
	}

	if _, err := w.UnregisterNode(as(t, "mac"), &ktmsv1.UnregisterNodeRequest{NodeId: "mac"}); err != nil {
		t.Fatal(err)
	}
	look()
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_OFFLINE: 1}, "mac offline absent")
}

// TestWatch_PoolAway keeps what was seen, and says once that nothing is known.
func TestWatch_PoolAway(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	watch := w.watch()
	watch.look(t.Context())
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_HEALTHY: 1}, "mac absent healthy")
	w.log.Reset()
	watch.options.Nodes = away{}
	for range 3 {
		watch.look(t.Context())
	}
	watch.want(t, nil)
	if n := strings.Count(w.log.String(), "does not answer"); n != 1 {
		t.Errorf("said %d times that the pool is away, want once", n)
	}
	watch.options.Nodes = w.nodes
	watch.look(t.Context())
	watch.want(t, counts{ktmsv1.NodeState_NODE_STATE_HEALTHY: 1})
	if !strings.Contains(w.log.String(), "answers again") {
		t.Errorf("logged %s", w.log.String())
	}
}

func TestWatch_Run(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	watch := NewWatch(WatchOptions{Nodes: w.nodes, Every: time.Millisecond, TTL: ttl, Log: w.options.Log, Counted: func(counts) {
		if looks++; looks == 3 {
			cancel()
		}
	}})
	watch.Run(ctx)
	if looks != 3 {
		t.Errorf("looked %d times, want until the end", looks)
	}
}

// TestStates has a word of the API for every state of the pool.
func TestStates(t *testing.T) {
	for health := selection.Offline; health <= selection.Healthy; health++ {
		if stateOf(health) == ktmsv1.NodeState_NODE_STATE_UNSPECIFIED {
			t.Errorf("health %d has no state", health)
		}
	}
	opened := pool.Node{OpenedAt: time.Unix(0, 0), HeartbeatAt: time.Unix(3600, 0)}
	if health, _ := opened.Health(time.Unix(3600, 0), ttl); stateOf(health) != ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN {
		t.Errorf("a circuit that waits for its trial is %v", stateOf(health))
	}
}
