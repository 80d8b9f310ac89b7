package main

import (
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// TestPool_AgentsComeAndGo restarts an agent by force, twice, starts one with a wrong key and one with another node's id, all
// while calls come. Agents that are refused say why and go on; nobody who calls sees anything of it.
func TestPool_AgentsComeAndGo(t *testing.T) {
	w := newPoolWorld(t, 1, poolSettings(t), false)
	g := w.gateways[0]
	n := w.join(0, 2)
	load := w.load(4, g)

	for range 2 {
		registered := n.seen(g).GetRegisteredAt().AsTime()
		n.agent.kill(t)
		n.startAgent(0)
		storetest.Eventually(t, patience, "the agent has registered again", func() bool {
			seen := n.seen(g)
			return seen.GetRegisteredAt().AsTime().After(registered) && seen.GetState() == ktmsv1.NodeState_NODE_STATE_HEALTHY
		})
	}

	stranger, renamed := w.machine(1), w.machine(1)
	stranger.agent = stranger.runAgent(0, "ktms_node_0123456789abcdef0123456789abcdef", stranger.id)
	renamed.agent = renamed.runAgent(0, renamed.key, "another-name")
	for _, refused := range []struct {
		node *poolNode
		says string
	}{
		{stranger, "the gateway does not accept the node key"},
		{renamed, `key belongs to node \"` + renamed.id + `\". A key is bound to one machine: use the --node-id it was minted for`},
	} {
		storetest.Eventually(t, patience, "the refused agent says "+refused.says, func() bool { return refused.node.agent.logs(refused.says) })
		storetest.Eventually(t, patience, "it tries again later", func() bool { return refused.node.agent.logs("trying again") })
		select {
		case <-refused.node.agent.exited:
			t.Errorf("the refused agent ended: %v\n%s", refused.node.agent.failed, refused.node.agent.log)
		default:
		}
	}
	if got := w.listed(g); len(got) != 1 {
		t.Errorf("listed are %v", got)
	}
	// The right id for the right key is taken at once.
	renamed.agent.kill(t)
	renamed.startAgent(0)
	renamed.awaitState(ktmsv1.NodeState_NODE_STATE_HEALTHY)
	storetest.Eventually(t, patience, "both machines serve", func() bool { return renamed.books().Served > 0 && n.books().Served > 0 })

	w.allServed(load())
	w.notOverbooked()
	w.free()
}
