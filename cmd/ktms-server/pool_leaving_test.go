package main

import (
	"syscall"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// TestPool_LeavingDropsNothing takes machines out while calls come: an agent is asked to end, an administrator drains a node
// and puts it back, a key is revoked. Nothing that runs is dropped, and nothing new is sent.
func TestPool_LeavingDropsNothing(t *testing.T) {
	const lines = 8
	w := newPoolWorld(t, 2, poolSettings(t), true)
	leaving, drained, revoked := w.join(0, 4), w.join(1, 4), w.join(0, 4)
	for _, n := range w.nodes {
		n.behaves(conduct{Took: 10 * time.Millisecond})
	}
	held := w.crowd(holdText, lines, w.gateways...)
	storetest.Eventually(t, patience, "calls are with the engines", func() bool { return w.held() == lines })
	load := w.load(lines, w.gateways...)
	admin := w.gateways[0].Admin

	// The agent waits for the calls that it has, so it is asked first.
	asked := time.Now()
	if leaving.books().Held == 0 || drained.books().Held == 0 || revoked.books().Held == 0 {
		t.Fatal("a machine has no call to finish")
	}
	leaving.agent.signal(t, syscall.SIGTERM)
	leaving.awaitState(ktmsv1.NodeState_NODE_STATE_DRAINING)
	must(t)(admin.DrainNode(t.Context(), &ktmsv1.DrainNodeRequest{NodeId: drained.id}))
	drained.awaitState(ktmsv1.NodeState_NODE_STATE_DRAINING)
	must(t)(admin.RevokeNodeKey(t.Context(), &ktmsv1.RevokeNodeKeyRequest{Name: revoked.id}))
	revoked.awaitState(ktmsv1.NodeState_NODE_STATE_UNSPECIFIED)
	w.sentNothing(100)

	must(t)(admin.UndrainNode(t.Context(), &ktmsv1.UndrainNodeRequest{NodeId: drained.id}))
	drained.awaitState(ktmsv1.NodeState_NODE_STATE_HEALTHY)
	before := drained.books().Asked
	storetest.Eventually(t, patience, "the node that was put back is asked again", func() bool { return drained.books().Asked > before })

	select {
	case <-leaving.agent.exited:
		t.Error("the agent left its calls behind")
	default:
	}
	w.release(conduct{Took: 10 * time.Millisecond})
	w.allServed(held())
	select {
	case <-leaving.agent.exited:
	case <-time.After(patience):
		t.Fatalf("the agent does not end:\n%s", leaving.agent.log)
	}
	t.Logf("the agent ended %v after it was asked to", time.Since(asked).Round(time.Millisecond))
	if leaving.agent.failed != nil || !leaving.agent.logs(`"msg":"unregistered"`) {
		t.Errorf("the agent ended with %v:\n%s", leaving.agent.failed, leaving.agent.log)
	}
	leaving.awaitState(ktmsv1.NodeState_NODE_STATE_UNSPECIFIED)
	revoked.awaitState(ktmsv1.NodeState_NODE_STATE_UNSPECIFIED)
	if !revoked.agent.logs("does not accept the node key") {
		t.Errorf("the agent of the revoked key says\n%s", revoked.agent.log)
	}
	by := w.allServed(load())
	t.Logf("the load was served by %v", by)
	w.notOverbooked()
	w.free()
}

// sentNothing holds that so many calls of each gateway go past all machines.
func (w *poolWorld) sentNothing(calls int) {
	w.Helper()
	var before []int
	for _, n := range w.nodes {
		before = append(before, n.books().Asked)
	}
	for _, g := range w.gateways {
		w.allServed(w.crowd("go on", calls, g)())
	}
	for i, n := range w.nodes {
		if got := n.books().Asked; got != before[i] {
			w.Errorf("%s was sent %d calls more", n.id, got-before[i])
		}
	}
}
