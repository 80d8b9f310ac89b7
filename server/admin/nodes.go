package admin

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

// maxWeighed is how many models one page of ListNodes weighs, the first by their ids. Each takes a round trip to the pool,
// and machines with a thousand models report them all.
const maxWeighed = 100

// ListNodes implements AdminService. It shows where a node is, and never what its engine's token is.
func (h *Handler) ListNodes(ctx context.Context, req *ktmsv1.ListNodesRequest) (*ktmsv1.ListNodesResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	fleet, err := h.options.Nodes.Fleet(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	page, next, err := pageOf(fleet.Nodes, req.GetPageSize(), req.GetPageToken(), func(n pool.Node) string { return n.ID })
	if err != nil {
		return nil, err
	}
	fleet.Nodes = page
	nodes, err := h.nodes(ctx, fleet)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	return &ktmsv1.ListNodesResponse{Nodes: nodes, NextPageToken: next}, nil
}

// DrainNode implements AdminService. A node that registers anew stays drained.
func (h *Handler) DrainNode(ctx context.Context, req *ktmsv1.DrainNodeRequest) (*ktmsv1.DrainNodeResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	node, err := h.drain(ctx, req.GetNodeId(), true)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	return &ktmsv1.DrainNodeResponse{Node: node}, nil
}

// UndrainNode implements AdminService. It takes back an administrator's drain, not the node's own.
func (h *Handler) UndrainNode(ctx context.Context, req *ktmsv1.UndrainNodeRequest) (*ktmsv1.UndrainNodeResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	node, err := h.drain(ctx, req.GetNodeId(), false)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	return &ktmsv1.UndrainNodeResponse{Node: node}, nil
}

// drain changes a node and returns it as it is then.
func (h *Handler) drain(ctx context.Context, id string, drained bool) (*ktmsv1.Node, error) {
	unknown := func(err error) error { return status.Wrap(err, status.NotFound, "no node %q", id) }
	if err := h.options.Nodes.Drain(ctx, id, drained); err != nil {
		if errors.Is(err, pool.ErrUnknownNode) {
			err = unknown(err)
		}
		return nil, err
	}
	h.options.Log.InfoContext(ctx, "node drained or put back", "node", id, "drained", drained,
		"by", caller.From(ctx).KeyName, "request_id", caller.RequestID(ctx))
	fleet, err := h.options.Nodes.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(fleet.Nodes, func(n pool.Node) bool { return n.ID == id })
	if i < 0 {
		return nil, unknown(pool.ErrUnknownNode) // it left in between
	}
	fleet.Nodes = fleet.Nodes[i : i+1]
	nodes, err := h.nodes(ctx, fleet)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// nodes describes the nodes of a part of the fleet, in their order.
func (h *Handler) nodes(ctx context.Context, fleet pool.Fleet) ([]*ktmsv1.Node, error) {
	ids := make([]string, 0, len(fleet.Nodes))
	var models []string
	for i := range fleet.Nodes {
		ids = append(ids, fleet.Nodes[i].ID)
		for _, m := range fleet.Nodes[i].Models {
			models = append(models, m.ID)
		}
	}
	loads, err := h.options.Nodes.Loads(ctx, "", ids)
	if err != nil {
		return nil, err
	}
	slices.Sort(models)
	models = slices.Compact(models)
	factors := map[string][]*ktmsv1.NodeFactor{}
	for _, model := range models[:min(len(models), maxWeighed)] {
		weighed, err := h.weigh(ctx, model, 0, 0)
		if err != nil {
			return nil, err
		}
		for _, factor := range weighed {
			factors[factor.GetNodeId()] = append(factors[factor.GetNodeId()], factor)
		}
	}
	nodes := make([]*ktmsv1.Node, 0, len(fleet.Nodes))
	for i := range fleet.Nodes {
		known := &fleet.Nodes[i]
		node := nodeOf(known, loads[i])
		health, reason := known.Health(fleet.Now, h.options.NodeTTL)
		if reason == "" && known.Level <= 0 {
			reason = selection.Paused.String()
		}
		node.State, node.StateReason = nodeStates[health], reason
		for _, factor := range factors[known.ID] {
			if slices.ContainsFunc(known.Models, func(m pool.NodeModel) bool { return m.ID == factor.GetModel() }) {
				node.Factors = append(node.Factors, factor)
			}
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// nodeStates are the pool's in the API's words. A trial is a broken circuit that has cooled down.
var nodeStates = map[selection.Health]ktmsv1.NodeState{
	selection.Offline:  ktmsv1.NodeState_NODE_STATE_OFFLINE,
	selection.Draining: ktmsv1.NodeState_NODE_STATE_DRAINING,
	selection.Broken:   ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN,
	selection.Trial:    ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN,
	selection.Suspect:  ktmsv1.NodeState_NODE_STATE_SUSPECT,
	selection.Healthy:  ktmsv1.NodeState_NODE_STATE_HEALTHY,
}

// nodeOf is a node but for its state and its factors.
func nodeOf(n *pool.Node, load pool.NodeLoad) *ktmsv1.Node {
	out := &ktmsv1.Node{
		NodeId: n.ID, Name: n.Name, Engine: n.Engine, Endpoint: n.Endpoint, AgentVersion: n.AgentVersion,
		BaseWeight: int32(n.BaseWeight), MaxConcurrent: int32(n.MaxConcurrent), LevelPercent: int32(n.Level),
		InFlight: int32(load.InFlight), IdleSlots: int32(load.Idle), QueuedPromptTokens: load.Queued,
		ActiveRequests: narrow(n.Active), QueueDepth: narrow(n.Waiting),
		RegisteredAt: timestamppb.New(n.RegisteredAt), LastHeartbeatAt: timestamppb.New(n.HeartbeatAt),
	}
	for _, m := range n.Models {
		out.Models = append(out.Models, &ktmsv1.NodeModel{Id: m.ID, IsWarm: m.Warm, ContextLength: m.Context, Capabilities: m.Capabilities})
	}
	if len(n.Models) > 0 {
		speed := n.Speeds[n.Models[0].ID]
		out.TtftSeconds, out.TokensPerSecond = speed.TTFT, speed.TPS
	}
	for _, g := range n.GPUs {
		out.Gpus = append(out.Gpus, &ktmsv1.NodeGPU{Name: g.Name, TemperatureCelsius: g.Celsius, UtilizationPercent: g.Utilization,
			MemoryTotalBytes: g.MemoryTotal, MemoryFreeBytes: g.MemoryFree})
	}
	return out
}

func narrow(n *int64) *int32 {
	if n == nil {
		return nil
	}
	return new(int32(*n))
}

// weigh tells how the selector sees every node for a model, and nothing where nobody weighs.
func (h *Handler) weigh(ctx context.Context, model string, prompt, maxOutput int64) ([]*ktmsv1.NodeFactor, error) {
	if h.options.Weigh == nil {
		return nil, nil
	}
	weighed, err := h.options.Weigh(ctx, model, prompt, maxOutput)
	if err != nil {
		return nil, err
	}
	out := make([]*ktmsv1.NodeFactor, 0, len(weighed))
	for _, w := range weighed {
		out = append(out, &ktmsv1.NodeFactor{
			NodeId: w.Node, Model: w.Model, Eligible: w.Verdict == selection.Eligible, Reason: w.Verdict.String(),
			Weight: w.Weight, Shortlisted: w.Shortlisted,
			Base: w.Base, Load: w.Load, Perf: w.Perf, Prefill: w.Prefill, Affinity: w.Affinity,
			TtftSeconds: w.Speed.TTFT, TokensPerSecond: w.Speed.TPS, SecondsPerPromptToken: w.SecondsPerToken,
		})
	}
	return out, nil
}
