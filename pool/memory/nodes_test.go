package memory

import (
	"testing"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

func TestNodesSuite(t *testing.T) {
	t.Parallel()
	pooltest.TestNodes(t, openNodes)
}

// openNodes makes two clients of one pool: within a process they are one.
func openNodes(_ *testing.T, clock *pooltest.Clock) []pool.Nodes {
	nodes := NewNodes(NodesOptions{Now: clock.Now})
	return []pool.Nodes{nodes, nodes}
}
