package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// question is what was asked about a model.
type question struct {
	model          string
	prompt, answer int64
}

// weighing is a Handler over a pool in memory whose selector is scripted.
type weighing struct {
	*Handler
	nodes *memory.Nodes
	now   time.Time
	log   bytes.Buffer
	asked []question
	err   error
}

func newWeighing(t *testing.T) *weighing {
	t.Helper()
	validator, err := status.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	w := &weighing{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.nodes = memory.NewNodes(memory.NodesOptions{Now: func() time.Time { return w.now }})
	w.Handler = New(Options{Nodes: w.nodes, NodeTTL: 15 * time.Second, Validator: validator, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Weigh: func(_ context.Context, model string, prompt, maxOutput int64) ([]pool.Weighing, error) {
			w.asked = append(w.asked, question{model, prompt, maxOutput})
			return []pool.Weighing{
				{Node: "linux", Model: model, Verdict: selection.Full},
				{Node: "mac", Model: model, Factors: selection.Factors{Base: 1, Load: 2, Perf: 3, Prefill: 4, Affinity: 5}, Weight: 12.5, Shortlisted: true,
					Speed: pool.Speed{TTFT: 0.25, TPS: 40}, SecondsPerToken: 0.001},
			}, w.err
		}})
	return w
}

func (w *weighing) register(t *testing.T, id string, models ...string) {
	t.Helper()
	report := pool.NodeReport{Level: selection.FullLevel}
	for _, model := range models {
		report.Models = append(report.Models, pool.NodeModel{ID: model})
	}
	if err := w.nodes.Register(t.Context(), pool.NodeSpec{ID: id, BaseWeight: 100, MaxConcurrent: 4, Token: []byte("sealed")}, report); err != nil {
		t.Fatal(err)
	}
}

func (w *weighing) list(t *testing.T) []*ktmsv1.Node {
	t.Helper()
	list, err := w.ListNodes(t.Context(), &ktmsv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetNodes()
}

// macFactor is what is told of the weighing of mac.
func macFactor(model string) *ktmsv1.NodeFactor {
	return &ktmsv1.NodeFactor{NodeId: "mac", Model: model, Eligible: true, Reason: "eligible", Weight: 12.5, Base: 1, Load: 2, Perf: 3, Prefill: 4,
		Affinity: 5, Shortlisted: true, TtftSeconds: 0.25, TokensPerSecond: 40, SecondsPerPromptToken: 0.001}
}

func TestListNodes_Factors(t *testing.T) {
	w := newWeighing(t)
	w.register(t, "mac", "qwen", "gemma")
	w.register(t, "linux", "qwen")
	nodes := w.list(t)
	if want := []question{{"gemma", 0, 0}, {"qwen", 0, 0}}; fmt.Sprint(w.asked) != fmt.Sprint(want) {
		t.Errorf("asked %v, want each model once, for a request without a prompt", w.asked)
	}
	linux, mac := nodes[0].GetFactors(), nodes[1].GetFactors()
	if len(mac) != 2 || !proto.Equal(mac[0], macFactor("gemma")) || !proto.Equal(mac[1], macFactor("qwen")) {
		t.Errorf("mac: %v", mac)
	}
	if len(linux) != 1 || !proto.Equal(linux[0], &ktmsv1.NodeFactor{NodeId: "linux", Model: "qwen", Reason: "all slots are taken"}) {
		t.Errorf("linux: %v", linux)
	}
	w.err = fmt.Errorf("refused: %w", pool.ErrUnavailable)
	if _, err := w.ListNodes(t.Context(), &ktmsv1.ListNodesRequest{}); err == nil || !strings.Contains(err.Error(), "the pool's state is not reachable") {
		t.Errorf("got %v", err)
	}
}

func TestListNodes_ManyModelsAreNotAllWeighed(t *testing.T) {
	w := newWeighing(t)
	var models []string
	for i := range maxWeighed + 1 {
		models = append(models, fmt.Sprintf("m%03d", i))
	}
	w.register(t, "mac", models...)
	if mac := w.list(t)[0]; len(w.asked) != maxWeighed || len(mac.GetFactors()) != maxWeighed || len(mac.GetModels()) != maxWeighed+1 {
		t.Errorf("asked %d times, listed %d models with %d factors", len(w.asked), len(mac.GetModels()), len(mac.GetFactors()))
	}
}

// TestListNodes_Loads shows what changes with every request, and the speed that requests have shown.
func TestListNodes_Loads(t *testing.T) {
	w := newWeighing(t)
	w.register(t, "mac", "gemma", "qwen")
	take := func(id pool.ID) pool.Lease {
		t.Helper()
		chosen, err := w.nodes.Choose(t.Context(), pool.Choosing{ID: id, TTL: time.Minute, Model: "gemma", Prompt: 700,
			Contenders: []pool.Contender{{Candidate: selection.Candidate{Node: "mac", Base: 1, Perf: 1, Max: 4, Slots: 4}}}})
		if err != nil || chosen.Lease == nil {
			t.Fatalf("%+v, %v", chosen, err)
		}
		return *chosen.Lease
	}
	take("a")
	take("b")
	if err := w.nodes.Release(t.Context(), pool.Release{Lease: take("c"), Outcome: pool.Succeeded, Idle: time.Minute, Measured: pool.Speed{TTFT: 0.5, TPS: 30}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.nodes.Beat(t.Context(), "mac", pool.NodeReport{Level: selection.FullLevel, Models: []pool.NodeModel{{ID: "gemma"}, {ID: "qwen"}}, Active: new(int64(3))}); err != nil {
		t.Fatal(err)
	}
	got := w.list(t)[0]
	if got.GetInFlight() != 2 || got.GetIdleSlots() != 1 || got.GetQueuedPromptTokens() != 1400 || got.GetActiveRequests() != 3 || got.QueueDepth != nil ||
		got.GetTtftSeconds() != 0.5 || got.GetTokensPerSecond() != 30 {
		t.Errorf("got %v", got)
	}
}

func TestListNodes_States(t *testing.T) {
	for health := selection.Offline; health <= selection.Healthy; health++ {
		if nodeStates[health] == ktmsv1.NodeState_NODE_STATE_UNSPECIFIED {
			t.Errorf("health %d has no state", health)
		}
	}
	w := newWeighing(t)
	w.register(t, "mac", "gemma")
	w.now = w.now.Add(15 * time.Second)
	if got := w.list(t)[0]; got.GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY || got.GetStateReason() != "" {
		t.Errorf("at the end of the TTL: %v", got)
	}
	w.now = w.now.Add(2 * time.Second)
	if got := w.list(t)[0]; got.GetState() != ktmsv1.NodeState_NODE_STATE_OFFLINE || got.GetStateReason() != "no heartbeat for 17 s" {
		t.Errorf("after it: %v", got)
	}
}

func TestExplainRoute_Nodes(t *testing.T) {
	w := newWeighing(t)
	req := &ktmsv1.ExplainRouteRequest{InputTokens: 700, OutputTokens: 30}
	candidate := func(vendor string) routing.Candidate {
		return routing.Candidate{Target: vendors.Target{Model: "gemma"}, Spec: &ktmsv1.ModelSpec{Id: "gemma", Vendor: vendor}}
	}
	got := w.nodesFor(t.Context(), candidate(vendors.Local), req)
	if len(got) != 2 || !proto.Equal(got[1], macFactor("gemma")) || len(w.asked) != 1 || w.asked[0] != (question{"gemma", 700, 30}) {
		t.Errorf("got %v for %v", got, w.asked)
	}
	if got := w.nodesFor(t.Context(), candidate("openai"), req); got != nil || len(w.asked) != 1 {
		t.Errorf("a model in the cloud has nodes: %v", got)
	}
	w.err = errors.New("lost")
	if got := w.nodesFor(t.Context(), candidate(vendors.Local), req); got != nil || !strings.Contains(w.log.String(), "explained without its nodes") {
		t.Errorf("got %v, logged %s", got, w.log.String())
	}
	w.options.Weigh = nil
	if got := w.nodesFor(t.Context(), candidate(vendors.Local), req); got != nil {
		t.Errorf("got %v, though nobody weighs", got)
	}
}
