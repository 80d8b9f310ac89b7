package noderegistry

import (
	"context"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// lease takes a slot of a node.
func lease(t *testing.T, nodes pool.Nodes, nodeID string, id pool.ID) {
	t.Helper()
	chosen, err := nodes.Choose(t.Context(), pool.Choosing{ID: id, TTL: time.Minute, Model: "gemma",
		Contenders: []pool.Contender{{Candidate: selection.Candidate{Node: nodeID, Base: 1, Perf: 1, Max: 9, Slots: 9}}}})
	if err != nil || chosen.Lease == nil {
		t.Fatalf("no slot: %+v, %v", chosen, err)
	}
}

func TestRegisterNode_Bounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for path, edit := range map[string]func(*ktmsv1.RegisterNodeRequest){
		"models: has 1001 models, more than 1000; name those to serve with --only-model": func(r *ktmsv1.RegisterNodeRequest) {
			r.Models = models(make([]string, maxModels+1)...)
			for i, m := range r.Models {
				m.Id = long(i%maxID + 1)
			}
		},
		"models: have 1029000 bytes of ids and capabilities, more than 524288": func(r *ktmsv1.RegisterNodeRequest) {
			r.Models = models(slices.Repeat([]string{"gemma"}, 1000)...)
			for _, m := range r.Models {
				m.Capabilities = slices.Repeat([]string{long(maxCapability)}, maxCapabilities/2)
			}
		},
		"models[1].id: has 513 bytes":               func(r *ktmsv1.RegisterNodeRequest) { r.Models[1].Id = long(maxID + 1) },
		"models[0].id: has control characters":      func(r *ktmsv1.RegisterNodeRequest) { r.Models[0].Id = "gem\nma" },
		"models[1].id: has control characters":      func(r *ktmsv1.RegisterNodeRequest) { r.Models[1].Id = "gem\u202ema" },
		"models[0].id":                              func(r *ktmsv1.RegisterNodeRequest) { r.Models[0].Id = "" },
		"models[0].context_length":                  func(r *ktmsv1.RegisterNodeRequest) { r.Models[0].ContextLength = -1 },
		"models[0].capabilities: has 33":            func(r *ktmsv1.RegisterNodeRequest) { r.Models[0].Capabilities = make([]string, maxCapabilities+1) },
		"models[0].capabilities[0]: has 65 bytes":   func(r *ktmsv1.RegisterNodeRequest) { r.Models[0].Capabilities = []string{long(maxCapability + 1)} },
		"gpus: has 65 GPUs":                         func(r *ktmsv1.RegisterNodeRequest) { r.Gpus = make([]*ktmsv1.NodeGPU, maxGPUs+1) },
		"base_weight: is 10001":                     func(r *ktmsv1.RegisterNodeRequest) { r.BaseWeight = selection.MaxBaseWeight + 1 },
		"base_weight":                               func(r *ktmsv1.RegisterNodeRequest) { r.BaseWeight = -1 },
		"max_concurrent: is 10001":                  func(r *ktmsv1.RegisterNodeRequest) { r.MaxConcurrent = maxConcurrent + 1 },
		"max_concurrent":                            func(r *ktmsv1.RegisterNodeRequest) { r.MaxConcurrent = -1 },
		"auth_token: has 4097 bytes":                func(r *ktmsv1.RegisterNodeRequest) { r.AuthToken = long(maxToken + 1) },
		"auth_token: has blanks":                    func(r *ktmsv1.RegisterNodeRequest) { r.AuthToken = "hunter2\r\nX-Evil: 1" },
		"auth_token: has blanks, control character": func(r *ktmsv1.RegisterNodeRequest) { r.AuthToken = "hunter2\u00e9" },
		"engine":   func(r *ktmsv1.RegisterNodeRequest) { r.Engine = "abacus" },
		"endpoint": func(r *ktmsv1.RegisterNodeRequest) { r.Endpoint = "" },
	} {
		w := newWorld(t)
		_, err := w.RegisterNode(as(t, "mac"), registration(edit))
		wantRefusal(t, path, err, connect.CodeInvalidArgument, path)
		if err != nil && strings.Contains(message(err), "hunter2") {
			t.Errorf("%s: the token is repeated: %v", path, err)
		}
		if w.node(t, "mac") != nil {
			t.Errorf("%s: it was registered all the same", path)
		}
	}
	w := newWorld(t)
	if _, err := w.RegisterNode(as(t, "mac"), registration(func(r *ktmsv1.RegisterNodeRequest) {
		r.Models, r.Gpus = nil, make([]*ktmsv1.NodeGPU, maxGPUs)
		for i := range maxModels {
			r.Models = append(r.Models, &ktmsv1.NodeModel{Id: long(maxID-3) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))})
		}
		for i := range r.Gpus {
			r.Gpus[i] = &ktmsv1.NodeGPU{}
		}
		r.AuthToken, r.BaseWeight, r.MaxConcurrent = long(maxToken), selection.MaxBaseWeight, maxConcurrent
	})); err != nil {
		t.Errorf("all bounds at once: %v", err)
	}
	if got := w.node(t, "mac"); got == nil || len(got.Models) != maxModels || len(got.GPUs) != maxGPUs {
		t.Error("something was lost")
	}
}

func TestHeartbeat_Bounds(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	for path, req := range map[string]*ktmsv1.HeartbeatRequest{
		"models[0].id":  {Models: models("a\tb")},
		"gpus":          {Gpus: make([]*ktmsv1.NodeGPU, maxGPUs+1)},
		"trouble":       {Trouble: strings.Repeat("x", maxTrouble+1)},
		"level_percent": {LevelPercent: new(int32(101))},
	} {
		req.NodeId = "mac"
		_, err := w.Heartbeat(as(t, "mac"), req)
		wantRefusal(t, path, err, connect.CodeInvalidArgument, path)
	}
	if got := w.node(t, "mac"); len(got.Models) != 2 {
		t.Errorf("a refused heartbeat changed the node: %+v", got)
	}
}

// TestReport_UnknownValues has what no machine has: it must neither be stored, nor take a node out.
func TestReport_UnknownValues(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	var gpus []*ktmsv1.NodeGPU
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		gpus = append(gpus, &ktmsv1.NodeGPU{TemperatureCelsius: new(v), UtilizationPercent: new(v), MemoryTotalBytes: new(int64(-1)), MemoryFreeBytes: new(int64(-1))})
	}
	gpus = append(gpus, &ktmsv1.NodeGPU{UtilizationPercent: new(-0.1)})
	resp, err := w.Heartbeat(as(t, "mac"), &ktmsv1.HeartbeatRequest{NodeId: "mac", Gpus: gpus, ActiveRequests: new(int32(-1)), QueueDepth: new(int32(-5)),
		Trouble: " \n", Models: []*ktmsv1.NodeModel{{Id: "gemma", ContextLength: math.MaxInt64}}})
	if err != nil || resp.GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY {
		t.Errorf("got %v, %v", resp, err)
	}
	want := pool.NodeReport{Level: 100, GPUs: make([]pool.NodeGPU, len(gpus)), Models: []pool.NodeModel{{ID: "gemma", Context: maxContext}}}
	if got := w.node(t, "mac").NodeReport; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	over := gpusOf([]*ktmsv1.NodeGPU{{UtilizationPercent: new(104.0), MemoryTotalBytes: new(int64(24 << 30)), MemoryFreeBytes: new(int64(0))}})
	if wantOver := []pool.NodeGPU{{Utilization: new(100.0), MemoryTotal: new(int64(24 << 30)), MemoryFree: new(int64(0))}}; !reflect.DeepEqual(over, wantOver) {
		t.Errorf("got %+v", over)
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"Anna's Mac":                "Anna's Mac",
		" a\r\nb\x00c ":             "a  b c",
		"\u202egnp.exe":             "gnp.exe",
		"\x1b[31mred":               "[31mred",
		"Übung Ωß":                  "Übung Ωß",
		strings.Repeat("ß", 11):     strings.Repeat("ß", 10),
		strings.Repeat(" ", 20):     "",
		"0123456789" + "\n" + "abc": "0123456789",
	} {
		if got := clean(text, 10); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	w := newWorld(t)
	if _, err := w.RegisterNode(as(t, "mac"), registration(func(r *ktmsv1.RegisterNodeRequest) {
		r.Name, r.AgentVersion = "a\nb"+strings.Repeat("x", 1000), strings.Repeat("1", 1000)
		r.Gpus = []*ktmsv1.NodeGPU{{Name: strings.Repeat("y", 1000) + "\x00"}}
	})); err != nil {
		t.Fatal(err)
	}
	if got := w.node(t, "mac"); got.Name != "a b"+strings.Repeat("x", maxName-3) || len(got.AgentVersion) != maxVersion || len(got.GPUs[0].Name) != maxName {
		t.Errorf("got %+v", got)
	}
}

// TestRegisterNode_CheckEnds gives up an endpoint whose check takes too long before the agent gives up the call.
func TestRegisterNode_CheckEnds(t *testing.T) {
	w := newWorld(t)
	var bound bool
	check := w.options.CheckEndpoint
	w.options.CheckEndpoint = func(ctx context.Context, raw string, allowed []netip.Prefix) (string, error) {
		deadline, ok := ctx.Deadline()
		bound = ok && time.Until(deadline) <= checkTimeout
		return check(ctx, raw, allowed)
	}
	w.register(t)
	if !bound {
		t.Error("the check of the endpoint may take for ever")
	}
}
