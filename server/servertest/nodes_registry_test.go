package servertest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/encoding/protojson"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
	"github.com/ai-process/ktms/vendors/guarded"
)

// TestNodes_JoinAndLeave walks a node's life through the agent's protocol.
func TestNodes_JoinAndLeave(t *testing.T) {
	keyring := servertest.Keyring(t)
	j := withMachines(t, func(o *server.Options) { o.Sealer = keyring })
	ctx := t.Context()
	minted, err := j.Admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "mac", NodeId: "mac", AllowedModels: []string{"gemma", "qwen"}})
	if err != nil || minted.GetConfigVersion() == 0 {
		t.Fatalf("minted %v, %v", minted, err)
	}
	registry := j.registry(t, minted.GetPlainKey(), connecthttp.WithGRPC())

	vetted, err := registry.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: "mac", Models: []string{"gemma", "gpt-4o"}})
	if err != nil || len(vetted.GetVerdicts()) != 2 || !vetted.GetVerdicts()[0].GetAllowed() || vetted.GetVerdicts()[1].GetAllowed() {
		t.Errorf("vetted %v, %v", vetted, err)
	}
	if got := j.nodes(t); len(got) > 0 {
		t.Errorf("vetting stored %v", got)
	}
	beat := func(req *ktmsv1.HeartbeatRequest) *ktmsv1.HeartbeatResponse {
		t.Helper()
		req.NodeId = "mac"
		resp, err := registry.Heartbeat(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if got := beat(&ktmsv1.HeartbeatRequest{}); !got.GetRegisterAgain() {
		t.Errorf("a node that nobody knows: %v", got)
	}

	wantRegistered := func() {
		t.Helper()
		req := node("mac", "gpt-4o", "gemma")
		req.Name, req.MaxConcurrent, req.BaseWeight, req.AgentVersion = "Anna's Mac", 2, 50, "1.2.3"
		resp, err := registry.RegisterNode(ctx, req)
		if err != nil || !slices.Equal(resp.GetIgnoredModels(), []string{"gpt-4o"}) || resp.GetHeartbeatIntervalSeconds() != 5 || !resp.GetSupportsLevels() {
			t.Fatalf("registered %v, %v", resp, err)
		}
	}
	wantRegistered()
	if got := beat(&ktmsv1.HeartbeatRequest{Models: []*ktmsv1.NodeModel{{Id: "gemma", IsWarm: true, ContextLength: 8192, Capabilities: []string{"judge"}}, {Id: "gpt-4o"}},
		ActiveRequests: new(int32(1)), LevelPercent: new(int32(50)), Gpus: []*ktmsv1.NodeGPU{{Name: "M4", TemperatureCelsius: new(61.5), MemoryFreeBytes: new(int64(1 << 30))}}}); got.GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY || got.GetRegisterAgain() {
		t.Errorf("a heartbeat: %v", got)
	}

	all := j.nodes(t)
	if len(all) != 1 {
		t.Fatalf("got %v", all)
	}
	got := all[0]
	if got.GetNodeId() != "mac" || got.GetName() != "Anna's Mac" || got.GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY || got.GetStateReason() != "" ||
		got.GetEngine() != "ollama" || got.GetEndpoint() != "http://gpu.example.com:11434/v1" || got.GetBaseWeight() != 50 || got.GetMaxConcurrent() != 2 ||
		got.GetLevelPercent() != 50 || got.GetActiveRequests() != 1 || got.QueueDepth != nil || got.GetAgentVersion() != "1.2.3" ||
		got.GetRegisteredAt() == nil || got.GetLastHeartbeatAt() == nil {
		t.Errorf("listed %v", got)
	}
	if m := got.GetModels(); len(m) != 1 || m[0].GetId() != "gemma" || !m[0].GetIsWarm() || m[0].GetContextLength() != 8192 || !slices.Equal(m[0].GetCapabilities(), []string{"judge"}) {
		t.Errorf("models %v", m)
	}
	if g := got.GetGpus(); len(g) != 1 || g[0].GetTemperatureCelsius() != 61.5 || g[0].GetMemoryFreeBytes() != 1<<30 || g[0].UtilizationPercent != nil {
		t.Errorf("GPUs %v", g)
	}

	sealed := j.sealedToken(t, "mac")
	if plain, err := admin.OpenNodeToken(keyring, "mac", sealed); err != nil || string(plain) != nodeToken {
		t.Errorf("the token opens as %q, %v", plain, err)
	}
	if _, err := admin.OpenNodeToken(keyring, "linux", sealed); err == nil {
		t.Error("the token opens for another node")
	}
	text, err := protojson.Marshal(got)
	if err != nil || strings.Contains(string(text), nodeToken) || strings.Contains(string(sealed), nodeToken) || strings.Contains(j.log.String(), nodeToken) {
		t.Error("the token is seen")
	}

	drained, err := j.Admin.DrainNode(ctx, &ktmsv1.DrainNodeRequest{NodeId: "mac"})
	if n := drained.GetNode(); err != nil || n.GetState() != ktmsv1.NodeState_NODE_STATE_DRAINING || !strings.Contains(n.GetStateReason(), "administrator") {
		t.Errorf("drained %v, %v", drained, err)
	}
	wantRegistered() // what an administrator said outlives a restart of the agent
	if got := beat(&ktmsv1.HeartbeatRequest{}); got.GetState() != ktmsv1.NodeState_NODE_STATE_DRAINING || !got.GetDraining() {
		t.Errorf("a drained node: %v", got)
	}
	undrained, err := j.Admin.UndrainNode(ctx, &ktmsv1.UndrainNodeRequest{NodeId: "mac"})
	if n := undrained.GetNode(); err != nil || n.GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY {
		t.Errorf("put back %v, %v", undrained, err)
	}
	if got := beat(&ktmsv1.HeartbeatRequest{Trouble: "the engine does not answer"}); got.GetState() != ktmsv1.NodeState_NODE_STATE_CIRCUIT_BROKEN {
		t.Errorf("a node in trouble: %v", got)
	}
	if got := j.nodes(t)[0].GetStateReason(); got != "the engine does not answer" {
		t.Errorf("the reason is %q", got)
	}

	for range 2 {
		if _, err := registry.UnregisterNode(ctx, &ktmsv1.UnregisterNodeRequest{NodeId: "mac"}); err != nil {
			t.Error(err)
		}
	}
	if got := j.nodes(t); len(got) > 0 {
		t.Errorf("still there: %v", got)
	}
	_, err = j.Admin.DrainNode(ctx, &ktmsv1.DrainNodeRequest{NodeId: "mac"})
	wantCode(t, "draining a node that left", err, connect.CodeNotFound, `no node "mac"`)
	_, err = j.Admin.UndrainNode(ctx, &ktmsv1.UndrainNodeRequest{NodeId: "mac"})
	wantCode(t, "putting a node back that left", err, connect.CodeNotFound, `no node "mac"`)
	_, err = j.Admin.DrainNode(ctx, &ktmsv1.DrainNodeRequest{})
	wantCode(t, "draining nobody", err, connect.CodeInvalidArgument, "node_id")
}

func TestNodes_Pages(t *testing.T) {
	j := withMachines(t, nil)
	for _, id := range []string{"c", "a", "e", "b", "d"} {
		j.join(t, id, "gemma")
	}
	got := pages(t, func(token string) (ids []string, next string, err error) {
		page, err := j.Admin.ListNodes(t.Context(), &ktmsv1.ListNodesRequest{PageSize: 2, PageToken: token})
		for _, n := range page.GetNodes() {
			ids = append(ids, n.GetNodeId())
		}
		return ids, page.GetNextPageToken(), err
	})
	if !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("listed %v", got)
	}
	_, err := j.Admin.ListNodes(t.Context(), &ktmsv1.ListNodesRequest{PageToken: "%%"})
	wantCode(t, "a made-up token", err, connect.CodeInvalidArgument, "page_token")
	_, err = j.Admin.ListNodes(t.Context(), &ktmsv1.ListNodesRequest{PageSize: 1001})
	wantCode(t, "a page too large", err, connect.CodeInvalidArgument, "page_size")
}

// TestNodes_OnlyTheNodesOwnKey tries every call of the registry with every key but the right one, over every protocol.
func TestNodes_OnlyTheNodesOwnKey(t *testing.T) {
	j := withMachines(t, nil)
	ctx := t.Context()
	right := j.join(t, "mac", "gemma")
	another, gone := mintNode(t, j.Instance, "linux", "linux"), mintNode(t, j.Instance, "gone", "mac")
	if _, err := j.Admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	client, administrator := mint(t, j.Instance, "client", "generate"), mint(t, j.Instance, "admin", "admin")
	for _, protocol := range [][]connecthttp.Option{nil, {connecthttp.WithGRPC()}, {connecthttp.WithGRPCWeb()}} {
		for _, try := range []struct {
			what, key string
			code      connect.Code
			says      string
		}{
			{"no key", "", connect.CodeUnauthenticated, "missing API key"},
			{"a wrong key", "ktms_node_00", connect.CodeUnauthenticated, ""},
			{"a revoked key", gone, connect.CodeUnauthenticated, ""},
			{"a client key", client, connect.CodePermissionDenied, "only a node key"},
			{"an admin key", administrator, connect.CodePermissionDenied, "only a node key"},
			{"the bootstrap key", servertest.AdminKey, connect.CodePermissionDenied, "only a node key"},
			{"another node's key", another, connect.CodePermissionDenied, `key belongs to node "linux"`},
		} {
			registry := j.registry(t, try.key, protocol...)
			_, register := registry.RegisterNode(ctx, node("mac", "evil"))
			_, beat := registry.Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac", Draining: true})
			_, leave := registry.UnregisterNode(ctx, &ktmsv1.UnregisterNodeRequest{NodeId: "mac"})
			_, vet := registry.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: "mac", Models: []string{"gemma"}})
			for call, err := range map[string]error{"RegisterNode": register, "Heartbeat": beat, "UnregisterNode": leave, "VetModels": vet} {
				wantCode(t, call+" with "+try.what, err, try.code, try.says)
			}
		}
	}
	if got := j.nodes(t); len(got) != 1 || got[0].GetState() != ktmsv1.NodeState_NODE_STATE_HEALTHY || got[0].GetModels()[0].GetId() != "gemma" {
		t.Errorf("somebody changed the nodes: %v", got)
	}
	if _, err := j.registry(t, right).Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac"}); err != nil {
		t.Errorf("the right key: %v", err)
	}
}

// TestNodes_AdminScopes tries the calls of the control plane that are about nodes with every kind of key.
func TestNodes_AdminScopes(t *testing.T) {
	j := withMachines(t, nil)
	ctx := t.Context()
	nodeKey := j.join(t, "mac", "gemma")
	for _, try := range []struct {
		what, key   string
		read, write connect.Code
	}{
		{"no key", "", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"a wrong key", "ktms_00", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"generate", mint(t, j.Instance, "generate", "generate"), connect.CodePermissionDenied, connect.CodePermissionDenied},
		{"the node's own key", nodeKey, connect.CodePermissionDenied, connect.CodePermissionDenied},
		{"admin:read", mint(t, j.Instance, "read", "admin:read"), 0, connect.CodePermissionDenied},
		{"admin", mint(t, j.Instance, "admin", "admin"), 0, 0},
	} {
		control := j.control(t, try.key)
		_, list := control.ListNodes(ctx, &ktmsv1.ListNodesRequest{})
		_, drain := control.DrainNode(ctx, &ktmsv1.DrainNodeRequest{NodeId: "mac"})
		_, undrain := control.UndrainNode(ctx, &ktmsv1.UndrainNodeRequest{NodeId: "mac"})
		_, rotate := control.RotateEncryption(ctx, &ktmsv1.RotateEncryptionRequest{})
		for _, call := range []struct {
			name string
			err  error
			want connect.Code
		}{{"ListNodes", list, try.read}, {"DrainNode", drain, try.write}, {"UndrainNode", undrain, try.write}, {"RotateEncryption", rotate, try.write}} {
			if call.want == 0 && call.err != nil {
				t.Errorf("%s with %s: %v", call.name, try.what, call.err)
			} else if call.want != 0 {
				wantCode(t, call.name+" with "+try.what, call.err, call.want)
			}
		}
	}
}

// TestNodes_ModelsOutsideTheKey are ignored, and without one that is allowed the node is refused.
func TestNodes_ModelsOutsideTheKey(t *testing.T) {
	j := withMachines(t, nil)
	minted, err := j.Admin.MintNodeKey(t.Context(), &ktmsv1.MintNodeKeyRequest{Name: "mac", NodeId: "mac", AllowedModels: []string{"gemma"}})
	if err != nil {
		t.Fatal(err)
	}
	registry := j.registry(t, minted.GetPlainKey())
	_, err = registry.RegisterNode(t.Context(), node("mac", "gpt-4o", "o3"))
	wantCode(t, "none is allowed", err, connect.CodePermissionDenied, `model "gpt-4o" not permitted for this node key`)
	if got := j.nodes(t); len(got) > 0 {
		t.Errorf("registered %v", got)
	}
	if _, err := registry.RegisterNode(t.Context(), node("mac")); err != nil {
		t.Errorf("without a model: %v", err)
	}
	if _, err := registry.Heartbeat(t.Context(), &ktmsv1.HeartbeatRequest{NodeId: "mac", Models: node("", "gpt-4o").GetModels()}); err != nil {
		t.Error(err)
	}
	if got := j.nodes(t)[0].GetModels(); len(got) > 0 {
		t.Errorf("a heartbeat brought %v", got)
	}
}

// TestNodes_EndpointsAreGuarded has endpoints inside the network; whoever holds a node key must not learn what is there.
func TestNodes_EndpointsAreGuarded(t *testing.T) {
	const forbidden, unknown = "the endpoint's address is not allowed for this key", "cannot resolve the endpoint's host"
	refusals := map[string]string{
		"http://127.0.0.1:11434": forbidden, "http://localhost:11434": forbidden, "http://[::1]/v1": forbidden,
		"http://169.254.169.254/latest": forbidden, "http://[fe80::1]/": forbidden, "http://10.0.0.7:11434": forbidden,
		"http://192.168.1.9/v1": forbidden, "http://db.example.com/v1": forbidden, "http://both.example.com/v1": forbidden,
		"http://nobody.example.com/v1": unknown, "http://2130706433/": "endpoint:", "http://anna:pw@gpu.example.com/": "endpoint:",
		"ftp://gpu.example.com/": "endpoint:", "": "endpoint:",
	}
	j := withMachines(t, nil)
	outside := j.registry(t, mintNode(t, j.Instance, "outside", "mac"))
	for raw, says := range refusals {
		code := connect.CodeInvalidArgument
		if says == unknown {
			code = connect.CodeFailedPrecondition
		}
		req := node("mac", "gemma")
		req.Endpoint = raw
		_, err := outside.RegisterNode(t.Context(), req)
		wantCode(t, raw, err, code, says)
		for _, secret := range []string{"10.0.0.5", "10.0.0.53", "169.254"} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: the node is told of %s: %v", raw, secret, err)
			}
		}
	}
	if got := j.nodes(t); len(got) > 0 {
		t.Errorf("registered %v", got)
	}
	if log := j.log.String(); !strings.Contains(log, "10.0.0.5") {
		t.Error("the operator is not told which address was refused")
	}

	minted, err := j.Admin.MintNodeKey(t.Context(), &ktmsv1.MintNodeKeyRequest{Name: "inside", NodeId: "mac", AllowedCidrs: []string{"10.0.0.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	inside := j.registry(t, minted.GetPlainKey())
	for raw, taken := range map[string]bool{"http://10.0.0.7:11434": true, "http://db.example.com/v1": true, "http://GPU.example.com/v1": true,
		"http://10.0.1.7:11434": false, "http://127.0.0.1": false, "http://169.254.169.254": false, "http://both.example.com/v1": false} {
		req := node("mac", "gemma")
		req.Endpoint = raw
		_, err := inside.RegisterNode(t.Context(), req)
		if taken && err != nil {
			t.Errorf("%s, which the key allows: %v", raw, err)
		} else if !taken {
			wantCode(t, raw+" with a key for 10.0.0.0/24", err, connect.CodeInvalidArgument, forbidden)
		}
	}
	fleet, err := j.machines.Fleet(t.Context())
	if err != nil || len(fleet.Nodes) != 1 || len(fleet.Nodes[0].Networks) != 1 || fleet.Nodes[0].Networks[0].String() != "10.0.0.0/24" {
		t.Errorf("the pool is not told which networks may be dialled: %+v, %v", fleet, err)
	}

	dev := withMachines(t, func(o *server.Options) {
		o.NodePool.CheckEndpoint = guardedBy(guarded.Options{Resolver: dns, AllowLocal: true})
	})
	req := node("mac", "gemma")
	req.Endpoint = "http://127.0.0.1:11434"
	if _, err := dev.registry(t, mintNode(t, dev.Instance, "mac", "mac")).RegisterNode(t.Context(), req); err != nil {
		t.Errorf("loopback, opened for development: %v", err)
	}
}

func TestNodes_RevocationTakesTheNodeOut(t *testing.T) {
	j := withMachines(t, nil)
	ctx := t.Context()
	key := j.join(t, "mac", "gemma")
	mintNode(t, j.Instance, "spare", "mac")
	revoke := func(name string) *ktmsv1.RevokeNodeKeyResponse {
		t.Helper()
		resp, err := j.Admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: name})
		if err != nil || resp.GetNodeKey().GetRevokedAt() == nil || resp.GetConfigVersion() == 0 {
			t.Fatalf("revoking %s: %v, %v", name, resp, err)
		}
		return resp
	}
	if got := revoke("spare"); got.GetNodeRemoved() || len(j.nodes(t)) != 1 {
		t.Errorf("a key that the node did not register with took it out: %v", got)
	}
	j.machines.away.Store(true)
	if got := revoke("mac"); got.GetNodeRemoved() {
		t.Errorf("the pool is away, so who removed the node? %v", got)
	}
	if log := j.log.String(); !strings.Contains(log, "stays in the pool until its heartbeats are missed") {
		t.Error("the log does not say that the node is still there")
	}
	_, err := j.registry(t, key).Heartbeat(ctx, &ktmsv1.HeartbeatRequest{NodeId: "mac"})
	wantCode(t, "the revoked key", err, connect.CodeUnauthenticated)
	j.machines.away.Store(false)
	if got := revoke("mac"); !got.GetNodeRemoved() || len(j.nodes(t)) != 0 {
		t.Errorf("revoked again, now that the pool is back: %v", got)
	}
}

func TestNodes_PoolAway(t *testing.T) {
	j := withMachines(t, nil)
	ctx := t.Context()
	key := j.join(t, "mac", "gemma")
	j.machines.away.Store(true)
	_, register := j.registry(t, key).RegisterNode(ctx, node("mac", "gemma"))
	_, list := j.Admin.ListNodes(ctx, &ktmsv1.ListNodesRequest{})
	_, drain := j.Admin.DrainNode(ctx, &ktmsv1.DrainNodeRequest{NodeId: "mac"})
	for what, err := range map[string]error{"RegisterNode": register, "ListNodes": list, "DrainNode": drain} {
		wantCode(t, what, err, connect.CodeUnavailable, "the pool's state is not reachable", "retry")
		if strings.Contains(err.Error(), "10.9.8.7") {
			t.Errorf("%s tells where the pool is: %v", what, err)
		}
	}
}

// TestNodes_WhatTheSelectorSees shows weighings in ListNodes and ExplainRoute, and there neither endpoint nor token.
func TestNodes_WhatTheSelectorSees(t *testing.T) {
	j := withMachines(t, nil)
	j.join(t, "linux", "qwen")
	key := j.join(t, "mac", "gemma", "qwen")
	small := node("", "gemma", "qwen").GetModels()
	small[0].ContextLength = 4096
	if _, err := j.registry(t, key).Heartbeat(t.Context(), &ktmsv1.HeartbeatRequest{NodeId: "mac", Models: small}); err != nil {
		t.Fatal(err)
	}
	all := j.nodes(t)
	if linux, mac := all[0].GetFactors(), all[1].GetFactors(); len(linux) != 1 || linux[0].GetModel() != "qwen" || linux[0].GetNodeId() != "linux" ||
		len(mac) != 2 || mac[0].GetModel() != "gemma" || mac[1].GetModel() != "qwen" || mac[1].GetNodeId() != "mac" ||
		!mac[0].GetEligible() || !mac[0].GetShortlisted() || !(mac[0].GetWeight() > 0) || mac[0].GetReason() != "eligible" {
		t.Errorf("factors %v and %v", linux, mac)
	}

	j.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{{Id: "gemma", Vendor: "local", Enabled: true}, servertest.Model("cloud", "http://127.0.0.1:1")}})
	reader := j.control(t, mint(t, j.Instance, "reader", "admin:read"))
	for _, try := range []struct {
		tokens    int64
		eligible  bool
		macReason string
	}{{2000, true, "eligible"}, {3000, false, "its context is too short"}} {
		route, err := reader.ExplainRoute(t.Context(), &ktmsv1.ExplainRouteRequest{ApiKeyName: "client", Effort: ktmsv1.Effort_EFFORT_LOW,
			InputTokens: try.tokens, OutputTokens: 2000})
		if err != nil || len(route.GetCandidates()) != 2 {
			t.Fatalf("got %v, %v", route, err)
		}
		local, cloud := route.GetCandidates()[0], route.GetCandidates()[1]
		if local.GetModel() != "gemma" || len(cloud.GetNodes()) != 0 || len(local.GetNodes()) != 2 {
			t.Fatalf("got %v and %v", local, cloud)
		}
		if linux := local.GetNodes()[0]; linux.GetNodeId() != "linux" || linux.GetEligible() || linux.GetReason() != "does not have the model" {
			t.Errorf("linux has no gemma: %v", linux)
		}
		if mac := local.GetNodes()[1]; mac.GetNodeId() != "mac" || mac.GetEligible() != try.eligible || mac.GetReason() != try.macReason {
			t.Errorf("%d tokens: mac is %v", try.tokens, mac)
		}
		if text := protojson.Format(route); strings.Contains(text, "gpu.example.com") || strings.Contains(text, nodeToken) {
			t.Errorf("a route says where its nodes are: %s", text)
		}
	}
}

// TestNodes_AreCounted exports the states, and no numbers while nobody knows them.
func TestNodes_AreCounted(t *testing.T) {
	j := withMachines(t, func(o *server.Options) { o.NodePool.Sweep = 10 * time.Millisecond })
	j.join(t, "mac", "gemma")
	j.join(t, "linux", "gemma")
	if _, err := j.Admin.DrainNode(t.Context(), &ktmsv1.DrainNodeRequest{NodeId: "linux"}); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, time.Minute, "one node is healthy and one is draining", func() bool {
		got := j.counted(t)
		return len(got) == 5 && got["healthy"] == 1 && got["draining"] == 1 && got["offline"] == 0
	})
	storetest.Eventually(t, time.Minute, "the change is logged", func() bool {
		return strings.Contains(j.log.String(), `node=linux from=healthy to=draining reason="drained by an administrator"`) ||
			strings.Contains(j.log.String(), `node=linux from=absent to=draining reason="drained by an administrator"`)
	})
	j.machines.away.Store(true)
	storetest.Eventually(t, time.Minute, "there are no numbers while the pool is away", func() bool { return len(j.counted(t)) == 0 })
}
