package noderegistry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

const (
	interval = 5 * time.Second
	ttl      = 15 * time.Second
)

// world is a registry over a pool in memory, with a clock that the test turns.
type world struct {
	*Handler
	nodes *memory.Nodes
	now   time.Time
	log   bytes.Buffer
	// refused is what becomes of endpoints; asked are the networks that were given along with the last one.
	refused error
	asked   []netip.Prefix
}

func newWorld(t *testing.T) *world {
	t.Helper()
	validator, err := status.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.nodes = memory.NewNodes(memory.NodesOptions{Now: func() time.Time { return w.now }})
	w.Handler = New(Options{
		Nodes: w.nodes, Interval: interval, TTL: ttl, Validator: validator, Sweep: 7 * time.Second, Settled: time.Millisecond,
		InCatalogue: func(model string) bool { return model != "qwen" },
		Seal: func(nodeID string, plain []byte) []byte {
			return fmt.Appendf(nil, "sealed for %s: %d bytes", nodeID, len(plain))
		},
		CheckEndpoint: func(_ context.Context, raw string, allowed []netip.Prefix) (string, error) {
			w.asked = allowed
			return strings.ToLower(raw), w.refused
		},
		Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	return w
}

// as is a call with a node key.
func as(t *testing.T, nodeID string, models ...string) context.Context {
	t.Helper()
	return caller.NewContext(t.Context(), &caller.Caller{KeyID: "id of " + nodeID, KeyName: "key of " + nodeID, NodeID: nodeID,
		Scopes: []string{caller.ScopeNode}, AllowedModels: models, AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
}

// registration is one that is taken, changed by edit.
func registration(edit func(*ktmsv1.RegisterNodeRequest)) *ktmsv1.RegisterNodeRequest {
	req := &ktmsv1.RegisterNodeRequest{NodeId: "mac", Name: "Anna's Mac", Engine: "ollama", Endpoint: "http://10.0.0.7:11434/v1",
		AuthToken: "s3cret", Models: models("gemma", "qwen"), BaseWeight: 50, MaxConcurrent: 2, AgentVersion: "1.2.3"}
	if edit != nil {
		edit(req)
	}
	return req
}

func models(ids ...string) (out []*ktmsv1.NodeModel) {
	for _, id := range ids {
		out = append(out, &ktmsv1.NodeModel{Id: id})
	}
	return out
}

func (w *world) register(t *testing.T) {
	t.Helper()
	if _, err := w.RegisterNode(as(t, "mac"), registration(nil)); err != nil {
		t.Fatal(err)
	}
}

// node is a node as the pool has it, or nil.
func (w *world) node(t *testing.T, id string) *pool.Node {
	t.Helper()
	fleet, err := w.nodes.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range fleet.Nodes {
		if fleet.Nodes[i].ID == id {
			return &fleet.Nodes[i]
		}
	}
	return nil
}

// wantRefusal holds an error to a code and to parts of its text.
func wantRefusal(t *testing.T, what string, err error, code connect.Code, parts ...string) {
	t.Helper()
	var rpc *connect.Error
	if !errors.As(err, &rpc) || rpc.Code() != code {
		t.Errorf("%s: got %v, want %v", what, err, code)
		return
	}
	for _, part := range parts {
		if !strings.Contains(rpc.Message(), part) {
			t.Errorf("%s: %q does not say %q", what, rpc.Message(), part)
		}
	}
}

// calls makes each call of the registry about one node.
func (w *world) calls(ctx context.Context, nodeID string) map[string]error {
	_, register := w.RegisterNode(ctx, registration(func(r *ktmsv1.RegisterNodeRequest) { r.NodeId = nodeID }))
	_, beat := w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: nodeID})
	_, vet := w.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: nodeID})
	_, leave := w.UnregisterNode(ctx, &ktmsv1.UnregisterNodeRequest{NodeId: nodeID})
	return map[string]error{"RegisterNode": register, "Heartbeat": beat, "VetModels": vet, "UnregisterNode": leave}
}

// away is a pool that does not answer.
type away struct{ pool.Nodes }

func (away) Register(context.Context, pool.NodeSpec, pool.NodeReport) error { return lost() }
func (away) Beat(context.Context, string, pool.NodeReport) (pool.Node, pool.NodeLoad, error) {
	return pool.Node{}, pool.NodeLoad{}, lost()
}
func (away) Remove(context.Context, string, string) (bool, error) { return false, lost() }
func (away) Fleet(context.Context) (pool.Fleet, error)            { return pool.Fleet{}, lost() }

func lost() error { return fmt.Errorf("10.9.8.7:6379 refused: %w", pool.ErrUnavailable) }
