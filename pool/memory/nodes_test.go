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

// TestNodesFaults shows that the suite catches what could be wrong.
func TestNodesFaults(t *testing.T) {
	t.Parallel()
	pooltest.TestNodesFaults(t, openNodes)
}

// FuzzNodes looks for a sequence that breaks the property, beyond those that the suite runs.
func FuzzNodes(f *testing.F) {
	f.Add(int64(1))
	f.Fuzz(func(t *testing.T, seed int64) {
		clock := pooltest.NewClock(noon)
		if err := pooltest.NodesProperty(t.Context(), seed, openNodes(t, clock), clock); err != nil {
			t.Error(err)
		}
	})
}
