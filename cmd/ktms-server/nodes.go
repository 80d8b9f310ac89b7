package main

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/noderegistry"
	"github.com/ai-process/ktms/store/seal"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/guarded"
	"github.com/ai-process/ktms/vendors/nodes"
	"github.com/ai-process/ktms/vendors/transport"
)

// localPool is the vendor that serves from the machines of the pool.
func localPool(cfg config, machines pool.Nodes, keyring *seal.Keyring, limits transport.Limits, log *slog.Logger) *nodes.Vendor {
	return nodes.New(nodes.Options{
		Nodes: machines, TTL: seconds(cfg.NodeTTL), Lease: cfg.lease, Policy: selection.Policy{Affinity: cfg.NodeAffinity},
		AllowLocal: allowsLocal(cfg), Limits: limits, Version: buildVersion(), Log: log,
		Open: func(nodeID string, sealed []byte) (vendors.Secret, error) {
			plain, err := admin.OpenNodeToken(keyring, nodeID, sealed)
			return vendors.NewSecret(string(plain)), err
		},
	})
}

// nodePool is what the server needs to know of the pool beside the machines.
func nodePool(cfg config, local *nodes.Vendor) server.NodePool {
	return server.NodePool{
		Interval: seconds(cfg.NodeInterval), TTL: seconds(cfg.NodeTTL), Sweep: cfg.NodeSweep,
		Weigh: local.Weigh, Run: local.Run,
		CheckEndpoint: noderegistry.Guarded(func(allowed []netip.Prefix) noderegistry.Guard {
			return guarded.New(guarded.Options{Allowed: allowed, AllowLocal: allowsLocal(cfg)})
		}, guarded.ErrForbidden),
	}
}

// allowsLocal: dev is on loopback itself, and so is what it is tried out with.
func allowsLocal(cfg config) bool { return cfg.NodeLocalhost || cfg.dev }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
