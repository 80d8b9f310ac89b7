package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// movesWithin is how long the calls of a machine that hangs stay with it, on a machine that is busy: about eleven seconds
// otherwise (see vendors/nodes/pulse.go).
const movesWithin = patience

// TestPool_SickMachinesAreNotSeen has one engine for each way to fail, and one that is well. Nobody sees an error, whoever is
// asked first, and the circuit of each sick one opens. Without the one that is well the cloud serves.
func TestPool_SickMachinesAreNotSeen(t *testing.T) {
	const calls = 240
	w := newPoolWorld(t, 1, poolSettings(t), true)
	g := w.gateways[0]
	for _, f := range []fault{faultCut, faultHalved, faultEnded, faultDone, faultRefuses, faultGarbage} {
		n := w.join(0, 8)
		n.behaves(conduct{Fault: f})
	}
	sick := w.nodes
	well := w.join(0, 8)
	by := w.allServed(w.crowd("go on", calls, g)())
	if by[well.engine.address]+by[cloudName] != calls || by[well.engine.address] == 0 {
		t.Errorf("served by %v", by)
	}
	for _, n := range sick {
		n.awaitState(ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN)
		t.Logf("%s was asked %d times", n.id, n.books().Asked)
	}
	w.free()
	well.engine.kill(t)
	if by := w.allServed(w.crowd("go on", calls, g)()); by[cloudName] != calls {
		t.Errorf("without a machine served by %v", by)
	}
	w.free()
}

// TestPool_KilledAndFrozenEngines kills an engine and freezes another one, each with calls in flight. What has not begun goes
// to the machine that is left, and to the cloud when it has no slot; a stream that has begun ends with one error event.
func TestPool_KilledAndFrozenEngines(t *testing.T) {
	const each = 4
	w := newPoolWorld(t, 2, poolSettings(t), true)
	killed, frozen := w.join(0, 4*each), w.join(1, 4*each)
	waiting := w.crowd(holdText, 4*each, w.gateways...)
	storetest.Eventually(t, patience, "calls wait for their first word", func() bool { return w.held() == 4*each })
	begun := w.crowdOf(beginText, 2*each, func(int) bool { return true }, w.gateways...)
	storetest.Eventually(t, patience, "streams have begun", func() bool { return w.held() == 6*each })
	for _, n := range w.nodes {
		if n.books().Held == 0 {
			t.Fatalf("%s has no calls", n.id)
		}
		t.Logf("%s has %d calls", n.id, n.books().Held)
	}
	left := w.join(1, 4*each)

	failed := time.Now()
	since := func() time.Duration { return time.Since(failed).Round(time.Millisecond) }
	killed.engine.kill(t)
	frozen.engine.signal(t, syscall.SIGSTOP)
	w.nodes = []*poolNode{left}
	storetest.Eventually(t, movesWithin, "what has not begun is with the machine that is left", func() bool { return left.books().Held == 4*each })
	t.Logf("all calls that had not begun were with another machine %v after the engines failed", since())
	for _, a := range begun() {
		if a.status != http.StatusOK || a.whole || a.err != nil || len(a.broken) != 1 || !strings.Contains(a.broken[0], `"message"`) || a.text == "" {
			t.Errorf("a stream that had begun ended with %+v", a)
		}
	}
	t.Logf("the last stream that had begun ended %v after the engines failed", since())
	w.release(conduct{})
	if by := w.allServed(waiting()); by[left.engine.address] != 4*each {
		t.Errorf("served by %v", by)
	}
	w.free()
	w.notOverbooked()
}
