package main

import (
	"context"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/vendors"
)

const (
	// poolModel is what the nodes serve.
	poolModel = "bench-local"
	// poolNodes is how many nodes there are to choose from. All of them are the scripted vendor.
	poolNodes = 12
	// poolSlots is more than the calls that are made at once, on each.
	poolSlots = 1000
	// poolTTL, in seconds, is longer than the bench: nodes send no heartbeats.
	poolTTL = "3600"
)

// poolGateways are the ways through the pool, beside one that calls the vendor itself.
func poolGateways(redis string) []*gateway {
	return []*gateway{{name: "vendor"}, {name: "pool in memory", pooled: true}, {name: "pool on Redis", pooled: true, redis: redis}}
}

// lend registers the nodes.
func (g *gateway) lend(ctx context.Context, vendor string) error {
	admin := g.admin()
	if _, err := admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: &ktmsv1.ModelSpec{Id: poolModel, Vendor: vendors.Local, Enabled: true}}); err != nil {
		return err
	}
	for i := range poolNodes {
		id := fmt.Sprintf("node-%d", i)
		minted, err := admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: id, NodeId: id})
		if err != nil {
			return err
		}
		registry := ktmsv1connect.NewNodeRegistryServiceClient(g.client(minted.GetPlainKey()))
		if _, err := registry.RegisterNode(ctx, &ktmsv1.RegisterNodeRequest{
			NodeId: id, Engine: "vllm", Endpoint: strings.TrimSuffix(vendor, "/chat/completions"), MaxConcurrent: poolSlots,
			Models: []*ktmsv1.NodeModel{{Id: poolModel, IsWarm: true}},
		}); err != nil {
			return err
		}
	}
	g.model = poolModel
	return nil
}
