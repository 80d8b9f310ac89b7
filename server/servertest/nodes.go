package servertest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/noderegistry"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/guarded"
	"github.com/ai-process/ktms/vendors/nodes"
)

// pooled adds the local pool, in this process unless the options have another, with nodes on loopback.
func pooled(t testing.TB, options *server.Options) {
	t.Helper()
	if options.Nodes == nil {
		options.Nodes = memory.NewNodes(memory.NodesOptions{})
	}
	if options.NodePool.TTL == 0 {
		options.NodePool.Interval, options.NodePool.TTL, options.NodePool.Sweep = 5*time.Second, 15*time.Second, 5*time.Second
	}
	sealer := options.Sealer
	local := nodes.New(nodes.Options{Nodes: options.Nodes, TTL: options.NodePool.TTL, Lease: options.Limits.Lease,
		Policy: selection.DefaultPolicy(), AllowLocal: true, Version: options.Version, Log: options.Log,
		Open: func(nodeID string, sealed []byte) (vendors.Secret, error) {
			plain, err := admin.OpenNodeToken(sealer, nodeID, sealed)
			return vendors.NewSecret(string(plain)), err
		}})
	t.Cleanup(local.CloseIdleConnections)
	options.Vendors[vendors.Local] = local
	options.NodePool.Run, options.NodePool.Weigh = local.Run, local.Weigh
	if options.NodePool.CheckEndpoint == nil {
		options.NodePool.CheckEndpoint = noderegistry.Guarded(func(allowed []netip.Prefix) noderegistry.Guard {
			return guarded.New(guarded.Options{Allowed: allowed, AllowLocal: true})
		}, guarded.ErrForbidden)
	}
}
