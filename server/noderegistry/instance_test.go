package noderegistry

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestTwoAgentsOfOneNode: the one that registered last is the node, and the other can neither speak for it nor take it out.
func TestTwoAgentsOfOneNode(t *testing.T) {
	w := newWorld(t)
	ctx := as(t, "mac", "gemma", "qwen")
	register := func(instance string) {
		t.Helper()
		if _, err := w.RegisterNode(ctx, registration(func(r *ktmsv1.RegisterNodeRequest) { r.Instance = instance })); err != nil {
			t.Fatal(err)
		}
	}
	beat := func(instance string) (*ktmsv1.HeartbeatResponse, error) {
		return w.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac", Instance: instance, Draining: instance == "old", Models: models("gemma")})
	}
	register("old")
	if _, err := beat("old"); err != nil {
		t.Fatal(err)
	}
	register("new")
	if resp, err := beat("new"); err != nil || resp.GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY {
		t.Fatalf("the new one: %v %v", resp, err)
	}
	if _, err := beat("old"); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), `another agent has registered node "mac"`) {
		t.Errorf("the old one speaks: %v", err)
	}
	if _, err := w.UnregisterNode(ctx, &ktmsv1.UnregisterNodeRequest{NodeId: "mac", Instance: "old"}); err != nil {
		t.Errorf("the old one leaves: %v", err)
	}
	if got := w.node(t, "mac"); got.Instance != "new" || got.Draining {
		t.Errorf("the node is %+v", got)
	}
	// An agent that says nothing of itself is believed, as before.
	if _, err := beat(""); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(ttl + time.Second)
	if resp, err := beat("old"); err != nil || !resp.GetRegisterAgain() {
		t.Errorf("when the new one is gone: %v %v", resp, err)
	}
	register("old")
	if _, err := beat("old"); err != nil {
		t.Error(err)
	}
	if _, err := w.UnregisterNode(ctx, &ktmsv1.UnregisterNodeRequest{NodeId: "mac", Instance: "old"}); err != nil {
		t.Error(err)
	}
	if fleet, err := w.nodes.Fleet(ctx); err != nil || len(fleet.Nodes) != 0 {
		t.Errorf("left behind: %v %v", fleet.Nodes, err)
	}
}

// TestVetModels_WhatDoctorsAsk: the endpoint as it would be judged, and whether requests reach a model at all.
func TestVetModels_WhatDoctorsAsk(t *testing.T) {
	w := newWorld(t)
	ask := func() *ktmsv1.VetModelsResponse {
		t.Helper()
		resp, err := w.VetModels(as(t, "mac"), &ktmsv1.VetModelsRequest{NodeId: "mac", Models: []string{"gemma", "qwen"}, Endpoint: "http://10.0.0.7"})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := ask()
	if v := resp.GetVerdicts(); resp.GetEndpointProblem() != "" || !v[0].GetInCatalogue() || v[1].GetInCatalogue() || !v[1].GetAllowed() {
		t.Errorf("got %v", resp)
	}
	w.refused = &EndpointError{Fault: Forbidden, Err: errors.New("10.0.0.7 is private")}
	if got := ask().GetEndpointProblem(); !strings.Contains(got, "allowed_cidrs") || strings.Contains(got, "10.0.0.7") {
		t.Errorf("the problem is %q", got)
	}
}
