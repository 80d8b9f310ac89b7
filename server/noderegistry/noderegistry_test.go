package noderegistry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

func TestRegisterNode_WhatIsKept(t *testing.T) {
	w := newWorld(t)
	resp, err := w.RegisterNode(as(t, "mac", "gemma", "qwen"), registration(func(r *ktmsv1.RegisterNodeRequest) {
		r.Endpoint = "HTTP://10.0.0.7:11434"
		r.Models = append(models("gemma", "other", "qwen", "gemma"), &ktmsv1.NodeModel{Id: "another"})
		r.Models[0].IsWarm, r.Models[0].ContextLength, r.Models[0].Capabilities = true, 8192, []string{"judge"}
		r.Gpus = []*ktmsv1.NodeGPU{{Name: "M4", TemperatureCelsius: new(61.5)}}
		r.LevelPercent = new(int32(40))
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(resp.GetIgnoredModels(), []string{"other", "another"}) || resp.GetHeartbeatIntervalSeconds() != 5 || !resp.GetSupportsLevels() ||
		resp.GetSweepIntervalSeconds() != 7 || !slices.Equal(resp.GetUncataloguedModels(), []string{"qwen"}) {
		t.Errorf("answered %v", resp)
	}
	got := w.node(t, "mac")
	spec := pool.NodeSpec{ID: "mac", Name: "Anna's Mac", Engine: "ollama", Endpoint: "http://10.0.0.7:11434", Token: []byte("sealed for mac: 6 bytes"),
		KeyID: "id of mac", Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, AllowedModels: []string{"gemma", "qwen"},
		BaseWeight: 50, MaxConcurrent: 2, AgentVersion: "1.2.3"}
	if !reflect.DeepEqual(got.NodeSpec, spec) {
		t.Errorf("got the spec  %+v\nwant %+v", got.NodeSpec, spec)
	}
	report := pool.NodeReport{Level: 40, Models: []pool.NodeModel{{ID: "gemma", Warm: true, Context: 8192, Capabilities: []string{"judge"}}, {ID: "qwen"}},
		GPUs: []pool.NodeGPU{{Name: "M4", Celsius: new(61.5)}}}
	if !reflect.DeepEqual(got.NodeReport, report) {
		t.Errorf("got the report  %+v\nwant %+v", got.NodeReport, report)
	}
	if !slices.Equal(w.asked, spec.Networks) {
		t.Errorf("the endpoint was checked with %v", w.asked)
	}
	if log := w.log.String(); !strings.Contains(log, `models="[other another]"`) || strings.Contains(log, "s3cret") {
		t.Errorf("logged %s", log)
	}
}

func TestRegisterNode_Defaults(t *testing.T) {
	w := newWorld(t)
	resp, err := w.RegisterNode(as(t, "mac"), &ktmsv1.RegisterNodeRequest{NodeId: "mac", Engine: "vllm", Endpoint: "http://gpu/v1"})
	if err != nil || len(resp.GetIgnoredModels()) > 0 {
		t.Fatalf("a node without models: %v, %v", resp, err)
	}
	if got := w.node(t, "mac"); got.BaseWeight != 100 || got.MaxConcurrent != 1 || got.Level != 100 || got.Token != nil || len(got.Models) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestRegisterNode_NoModelIsAllowed(t *testing.T) {
	w := newWorld(t)
	_, err := w.RegisterNode(as(t, "mac", "llama"), registration(nil))
	wantRefusal(t, "two models outside the key", err, connect.CodePermissionDenied)
	if got := message(err); got != `model "gemma" not permitted for this node key` {
		t.Errorf("said %q, which the agent does not know", got)
	}
	if w.node(t, "mac") != nil {
		t.Error("it was registered all the same")
	}
}

func message(err error) string {
	var rpc *connect.Error
	errors.As(err, &rpc)
	return rpc.Message()
}

// TestAdmit_OnlyTheNodeItself tries each call with another node's key, and with keys of other kinds.
func TestAdmit_OnlyTheNodeItself(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	before := *w.node(t, "mac")
	for name, err := range w.calls(as(t, "linux"), "mac") {
		wantRefusal(t, name, err, connect.CodePermissionDenied)
		if got := message(err); got != `key belongs to node "linux"` {
			t.Errorf("%s said %q, which the agent does not know", name, got)
		}
	}
	admin := caller.NewContext(t.Context(), &caller.Caller{Scopes: []string{caller.ScopeAdmin}})
	for _, nodeID := range []string{"mac", ""} {
		for name, err := range w.calls(admin, nodeID) {
			wantRefusal(t, name+" with an admin key", err, connect.CodePermissionDenied, "only a node key")
		}
		for name, err := range w.calls(t.Context(), nodeID) {
			wantRefusal(t, name+" without a key", err, connect.CodePermissionDenied, "only a node key")
		}
	}
	if after := w.node(t, "mac"); !reflect.DeepEqual(before, *after) || w.node(t, "linux") != nil {
		t.Errorf("the pool changed to %+v", after)
	}
	long := strings.Repeat("x\n", 5000)
	_, err := w.Heartbeat(as(t, "linux"), &ktmsv1.HeartbeatRequest{NodeId: long})
	wantRefusal(t, "a made-up id", err, connect.CodePermissionDenied)
	if w.log.Len() > 20*1000 {
		t.Errorf("%d bytes were logged", w.log.Len())
	}
}

func TestRegisterNode_Endpoints(t *testing.T) {
	internal := errors.New(`host "db.internal": 10.11.12.13 is private`)
	for _, test := range []struct {
		name    string
		refused error
		code    connect.Code
		says    string
		logged  bool
	}{
		{"no URL", &EndpointError{Malformed, errors.New("the endpoint has a fragment")}, connect.CodeInvalidArgument, "endpoint: the endpoint has a fragment", false},
		{"a closed address", &EndpointError{Forbidden, internal}, connect.CodeInvalidArgument, "endpoint: the endpoint's address is not allowed for this key; an admin opens private networks with allowed_cidrs", true},
		{"a name without address", &EndpointError{Unresolved, internal}, connect.CodeFailedPrecondition, "cannot resolve the endpoint's host", true},
		{"wrapped", fmt.Errorf("it: %w", &EndpointError{Forbidden, internal}), connect.CodeInvalidArgument, "NODE_ALLOW_LOCALHOST_ENDPOINTS", true},
		{"anything else", internal, connect.CodeInternal, "internal error", true},
	} {
		w := newWorld(t)
		w.refused = test.refused
		_, err := w.RegisterNode(as(t, "mac"), registration(nil))
		wantRefusal(t, test.name, err, test.code, test.says)
		if said := message(err); strings.Contains(said, "10.11.12.13") || strings.Contains(said, "db.internal") {
			t.Errorf("%s: the node was told of the network: %s", test.name, said)
		}
		if strings.Contains(w.log.String(), "10.11.12.13") != test.logged {
			t.Errorf("%s: logged %s", test.name, w.log.String())
		}
		if w.node(t, "mac") != nil {
			t.Errorf("%s: it was registered all the same", test.name)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	ctx := as(t, "mac", "gemma", "qwen")
	resp, err := w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac"})
	if err != nil || !resp.GetRegisterAgain() || resp.GetHeartbeatIntervalSeconds() != 5 {
		t.Fatalf("a node that is not known: %v, %v", resp, err)
	}
	w.register(t)
	w.now = w.now.Add(7 * time.Second)
	resp, err = w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac", Models: models("gpt-4o", "gemma"), ActiveRequests: new(int32(3)),
		QueueDepth: new(int32(0)), LevelPercent: new(int32(0)), Gpus: []*ktmsv1.NodeGPU{{TemperatureCelsius: new(90.0)}}})
	if err != nil || resp.GetRegisterAgain() || resp.GetState() != ktmsv1.NodeState_NODE_STATE_SUSPECT || resp.GetDraining() || resp.GetHeartbeatIntervalSeconds() != 5 {
		t.Errorf("a hot node: %v, %v", resp, err)
	}
	got := w.node(t, "mac")
	if want := (pool.NodeReport{Models: []pool.NodeModel{{ID: "gemma"}}, Active: new(int64(3)), Waiting: new(int64(0)), GPUs: []pool.NodeGPU{{Celsius: new(90.0)}}}); !reflect.DeepEqual(got.NodeReport, want) {
		t.Errorf("got  %+v\nwant %+v", got.NodeReport, want)
	}
	if !got.HeartbeatAt.Equal(w.now) {
		t.Errorf("heard of at %v, want %v", got.HeartbeatAt, w.now)
	}
	for _, test := range []struct {
		what string
		req  *ktmsv1.HeartbeatRequest
		want ktmsv1.NodeState
	}{
		{"well", &ktmsv1.HeartbeatRequest{}, ktmsv1.NodeState_NODE_STATE_HEALTHY},
		{"in trouble", &ktmsv1.HeartbeatRequest{Trouble: "the engine\n is down"}, ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN},
		{"leaving", &ktmsv1.HeartbeatRequest{Draining: true}, ktmsv1.NodeState_NODE_STATE_DRAINING},
	} {
		test.req.NodeId = "mac"
		resp, err := w.Heartbeat(ctx, test.req)
		if err != nil || resp.GetState() != test.want || resp.GetDraining() {
			t.Errorf("%s: %v, %v", test.what, resp, err)
		}
	}
	if got := w.node(t, "mac"); got.Level != 100 || got.Active != nil || len(got.Models) != 0 {
		t.Errorf("what a heartbeat leaves out is not known any more: %+v", got.NodeReport)
	}
	if err := w.nodes.Drain(t.Context(), "mac", true); err != nil {
		t.Fatal(err)
	}
	resp, err = w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac"})
	if err != nil || resp.GetState() != ktmsv1.NodeState_NODE_STATE_DRAINING || !resp.GetDraining() {
		t.Errorf("drained by an administrator: %v, %v", resp, err)
	}
}

// TestHeartbeat_CountsOurRequests has to hold until a drain is over: an agent leaves when it reads 0.
func TestHeartbeat_CountsOurRequests(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	lease(t, w.nodes, "mac", "a")
	lease(t, w.nodes, "mac", "b")
	resp, err := w.Heartbeat(as(t, "mac"), &ktmsv1.HeartbeatRequest{NodeId: "mac", Models: models("gemma")})
	if err != nil || resp.GetActiveProxyRequests() != 2 {
		t.Errorf("two requests are under way: %v, %v", resp, err)
	}
}

// TestHeartbeat_AnotherKeyOfTheNode goes on with what was registered: the former key can still take the node out.
func TestHeartbeat_AnotherKeyOfTheNode(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	next := caller.NewContext(t.Context(), &caller.Caller{KeyID: "the next", NodeID: "mac", Scopes: []string{caller.ScopeNode}, AllowedModels: []string{"qwen"}})
	resp, err := w.Heartbeat(next, &ktmsv1.HeartbeatRequest{NodeId: "mac", Models: models("gemma", "qwen")})
	if err != nil || resp.GetRegisterAgain() {
		t.Fatalf("got %v, %v", resp, err)
	}
	if got := w.node(t, "mac"); got.KeyID != "id of mac" || len(got.Models) != 1 || got.Models[0].ID != "qwen" {
		t.Errorf("got %+v", got)
	}
}

func TestUnregisterNode(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	for range 2 {
		if _, err := w.UnregisterNode(as(t, "mac"), &ktmsv1.UnregisterNodeRequest{NodeId: "mac"}); err != nil {
			t.Error(err)
		}
		if w.node(t, "mac") != nil {
			t.Error("it is still there")
		}
	}
}

// TestUnregisterNode_WhileDrained: an owner who restarts the agent does not put the node back that an administrator took out.
func TestUnregisterNode_WhileDrained(t *testing.T) {
	w := newWorld(t)
	w.register(t)
	if err := w.nodes.Drain(t.Context(), "mac", true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.UnregisterNode(as(t, "mac"), &ktmsv1.UnregisterNodeRequest{NodeId: "mac"}); err != nil {
			t.Error(err)
		}
		if left := w.node(t, "mac"); left == nil || len(left.Models) != 0 {
			t.Errorf("after it left: %+v", left)
		}
		w.register(t)
		if back := w.node(t, "mac"); back == nil || !back.Drained || len(back.Models) == 0 {
			t.Errorf("after it came back: %+v", back)
		}
	}
	if err := w.nodes.Drain(t.Context(), "mac", false); err != nil {
		t.Fatal(err)
	}
	if _, err := w.UnregisterNode(as(t, "mac"), &ktmsv1.UnregisterNodeRequest{NodeId: "mac"}); err != nil || w.node(t, "mac") != nil {
		t.Errorf("put back, it does not leave: %v", err)
	}
}

// TestFlood: one node's calls are no more than it needs, whatever they are, and no other node is held back for it.
func TestFlood(t *testing.T) {
	w := newWorld(t)
	w.options.Now = func() time.Time { return w.now }
	ctx := as(t, "mac")
	beat := func() error {
		_, err := w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac"})
		return err
	}
	others := []func() error{
		beat,
		func() error {
			_, err := w.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: "mac"})
			return err
		},
		func() error { // about another node
			_, err := w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "pc"})
			return err
		},
	}
	for i := range int(calls.atOnce) {
		if err := others[i%len(others)](); i%len(others) < 2 && err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	for name, err := range w.calls(ctx, "mac") {
		wantRefusal(t, name, err, connect.CodeResourceExhausted, "calls too often")
	}
	if told := strings.Count(w.log.String(), "a node calls too often"); told != 1 {
		t.Errorf("the log tells of it %d times", told)
	}
	if _, err := w.Heartbeat(as(t, "pc"), &ktmsv1.HeartbeatRequest{NodeId: "pc"}); err != nil {
		t.Errorf("another node: %v", err)
	}
	w.now = w.now.Add(time.Second)
	taken := 0
	for range 20 {
		if beat() == nil {
			taken++
		}
	}
	if taken != int(calls.perSecond) {
		t.Errorf("%d calls are taken in the next second, want %v", taken, calls.perSecond)
	}
	w.now = w.now.Add(-time.Hour)
	if beat() == nil {
		t.Error("a clock that was set back gave calls")
	}
}

// TestFlood_OfRegistrations, which close a circuit at another endpoint, is held back more; heartbeats go on.
func TestFlood_OfRegistrations(t *testing.T) {
	w := newWorld(t)
	w.options.Now = func() time.Time { return w.now }
	register := func() error {
		_, err := w.RegisterNode(as(t, "mac"), registration(nil))
		return err
	}
	for i := range int(registrations.atOnce) {
		if err := register(); err != nil {
			t.Fatalf("registration %d: %v", i, err)
		}
	}
	err := register()
	wantRefusal(t, "one more", err, connect.CodeResourceExhausted, "registers too often")
	if refused, is := errors.AsType[*status.Error](err); !is || refused.RetryAfter != 10*time.Second {
		t.Errorf("it shall wait 10 s, got %+v", refused)
	}
	if _, err := w.Heartbeat(as(t, "mac"), &ktmsv1.HeartbeatRequest{NodeId: "mac"}); err != nil {
		t.Errorf("a heartbeat: %v", err)
	}
	w.now = w.now.Add(10 * time.Second)
	w.refused = &EndpointError{Fault: Forbidden, Err: errors.New("no")}
	wantRefusal(t, "an endpoint that is not taken", register(), connect.CodeInvalidArgument) // and does not count
	w.refused = nil
	if err := register(); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestVetModels(t *testing.T) {
	w := newWorld(t)
	resp, err := w.VetModels(as(t, "mac", "gemma"), &ktmsv1.VetModelsRequest{NodeId: "mac", Models: []string{"gemma", "gpt-4o"}})
	if err != nil {
		t.Fatal(err)
	}
	got := resp.GetVerdicts()
	if len(got) != 2 || got[0].GetModel() != "gemma" || !got[0].GetAllowed() || got[0].GetReason() != "" ||
		got[1].GetModel() != "gpt-4o" || got[1].GetAllowed() || got[1].GetReason() != `model "gpt-4o" not permitted for this node key` {
		t.Errorf("got %v", got)
	}
	if w.node(t, "mac") != nil {
		t.Error("something was stored")
	}
	for what, names := range map[string][]string{"empty": {""}, "control": {"a\x00b"}, "long": {strings.Repeat("x", maxID+1)}, "many": make([]string, maxModels+1)} {
		_, err := w.VetModels(as(t, "mac"), &ktmsv1.VetModelsRequest{NodeId: "mac", Models: names})
		wantRefusal(t, what, err, connect.CodeInvalidArgument, "models")
	}
}

func TestPoolAway(t *testing.T) {
	w := newWorld(t)
	w.options.Nodes = away{}
	for name, err := range w.calls(as(t, "mac"), "mac") {
		if name == "VetModels" {
			if err != nil {
				t.Errorf("vetting needs no pool: %v", err)
			}
			continue
		}
		wantRefusal(t, name, err, connect.CodeUnavailable, "the pool's state is not reachable", "retry")
		if strings.Contains(message(err), "10.9.8.7") {
			t.Errorf("%s told the node where the pool is: %v", name, message(err))
		}
	}
	gone, cancel := context.WithCancel(as(t, "mac"))
	cancel()
	w.options.Nodes = w.nodes
	_, err := w.Heartbeat(gone, &ktmsv1.HeartbeatRequest{NodeId: "mac"})
	wantRefusal(t, "a caller that left", err, connect.CodeCanceled)
}
