package redis

import (
	"testing"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// twoClients makes two clients of one pool of nodes that nobody else uses.
func twoClients(t testing.TB, options Options) []pool.Nodes {
	t.Helper()
	options.KeyPrefix, options.Timeout = pooltest.Prefix(t), patience
	return []pool.Nodes{open(t, options).Nodes(NodesOptions{}), open(t, options).Nodes(NodesOptions{})}
}

func TestNodesSuite(t *testing.T) {
	pooltest.TestNodes(t, func(t *testing.T, clock *pooltest.Clock) []pool.Nodes {
		return twoClients(t, Options{Addr: pooltest.Redis(t), Now: clock.Now})
	})
}
