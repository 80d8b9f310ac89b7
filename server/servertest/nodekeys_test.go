package servertest_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// mintNode mints a node key and returns the plain one.
func mintNode(t *testing.T, s *servertest.Instance, name, nodeID string) string {
	t.Helper()
	minted, err := s.Admin.MintNodeKey(t.Context(), &ktmsv1.MintNodeKeyRequest{Name: name, NodeId: nodeID})
	if err != nil {
		t.Fatal(err)
	}
	return minted.GetPlainKey()
}

// beat calls the node registry for a node that has not registered.
func beat(t *testing.T, s *servertest.Instance, key string, options ...connecthttp.Option) error {
	t.Helper()
	registry := ktmsv1connect.NewNodeRegistryServiceClient(s.Client(t, key, options...))
	_, err := registry.Heartbeat(t.Context(), &ktmsv1.HeartbeatRequest{NodeId: "mac"})
	return err
}

func wantBeat(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestNodeKeys_AdminCalls(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	minted, err := admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "key-0", NodeId: "anna-mac",
		AllowedModels: []string{"gemma4:26b"}, AllowedCidrs: []string{"10.1.0.0/16", "FD00:1::/48", "fd00:1::/48"}})
	if err != nil {
		t.Fatal(err)
	}
	plain, key := minted.GetPlainKey(), minted.GetNodeKey()
	if !strings.HasPrefix(plain, "ktms_node_") || len(plain) != 58 || !strings.HasPrefix(plain, key.GetPrefix()) || len(key.GetPrefix()) >= len(plain)/2 {
		t.Errorf("an odd key with the prefix %q and the length %d", key.GetPrefix(), len(plain))
	}
	if key.GetNodeId() != "anna-mac" || !slices.Equal(key.GetAllowedModels(), []string{"gemma4:26b"}) ||
		!slices.Equal(key.GetAllowedCidrs(), []string{"10.1.0.0/16", "fd00:1::/48"}) || key.GetCreatedAt() == nil || key.GetRevokedAt() != nil {
		t.Errorf("minted %v", key)
	}
	for i := 1; i < 5; i++ {
		mintNode(t, s, fmt.Sprintf("key-%d", i), "anna-mac")
	}

	_, err = admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "key-0", NodeId: "another"})
	wantCode(t, "a name twice", err, connect.CodeAlreadyExists, "key-0")
	_, err = admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "no spaces", AllowedCidrs: []string{"10.0.0.1/8"}})
	wantCode(t, "three mistakes", err, connect.CodeInvalidArgument)
	if got := paths(t, err); !slices.Equal(got, []string{"name", "node_id", "allowed_cidrs[0]"}) {
		t.Errorf("paths %v, want all mistakes", got)
	}
	_, err = admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "x", NodeId: "x", AllowedModels: []string{"m", ""}})
	wantCode(t, "an empty model", err, connect.CodeInvalidArgument, "allowed_models[1]")
	_, err = admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: "nobody"})
	wantCode(t, "an unknown key", err, connect.CodeNotFound, "nobody")
	_, err = admin.ListNodeKeys(ctx, &ktmsv1.ListNodeKeysRequest{PageToken: "%%"})
	wantCode(t, "a made-up token", err, connect.CodeInvalidArgument)

	revoked, err := admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: "key-3"})
	if err != nil || revoked.GetNodeKey().GetRevokedAt() == nil {
		t.Fatalf("revoked %v, %v", revoked, err)
	}
	if _, err := admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "key-3", NodeId: "n"}); connect.CodeOf(err) != connect.CodeAlreadyExists ||
		!strings.Contains(err.Error(), "is revoked, and keeps its name") {
		t.Errorf("the name of a revoked key: %v", err)
	}
	again, err := admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: "key-3"})
	if err != nil || !again.GetNodeKey().GetRevokedAt().AsTime().Equal(revoked.GetNodeKey().GetRevokedAt().AsTime()) {
		t.Errorf("revoking twice must change nothing: %v, %v", again, err)
	}
	if got, want := listed(t, s, false), []string{"key-0", "key-1", "key-2", "key-4"}; !reflect.DeepEqual(got, want) {
		t.Errorf("active are %v, want %v", got, want)
	}
	if got, want := listed(t, s, true), []string{"key-0", "key-1", "key-2", "key-3", "key-4"}; !reflect.DeepEqual(got, want) {
		t.Errorf("all are %v, want %v", got, want)
	}
}

// listed pages through the node keys.
func listed(t *testing.T, s *servertest.Instance, revoked bool) (names []string) {
	t.Helper()
	for token, pages := "", 0; pages < 6; pages++ {
		page, err := s.Admin.ListNodeKeys(t.Context(), &ktmsv1.ListNodeKeysRequest{PageSize: 2, PageToken: token, IncludeRevoked: revoked})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range page.GetNodeKeys() {
			names = append(names, key.GetName())
		}
		if token = page.GetNextPageToken(); token == "" {
			return names
		}
	}
	t.Fatal("the pages do not end")
	return nil
}

func TestNodeKeys_Scopes(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx := t.Context()
	for _, try := range []struct {
		scope       string
		write, read bool
	}{{"admin", true, true}, {"admin:read", false, true}, {"generate", false, false}} {
		minted, err := s.Admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: strings.ReplaceAll(try.scope, ":", "-"), Scopes: []string{try.scope}})
		if err != nil {
			t.Fatal(err)
		}
		admin := ktmsv1connect.NewAdminServiceClient(s.Client(t, minted.GetPlainKey()))
		_, mint := admin.MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "n", NodeId: "n"})
		_, revoke := admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: "n"})
		_, list := admin.ListNodeKeys(ctx, &ktmsv1.ListNodeKeysRequest{})
		for _, call := range []struct {
			name string
			err  error
			may  bool
		}{{"MintNodeKey", mint, try.write}, {"RevokeNodeKey", revoke, try.write}, {"ListNodeKeys", list, try.read}} {
			if call.may && call.err != nil {
				t.Errorf("%s with %s: %v", call.name, try.scope, call.err)
			}
			if !call.may {
				wantCode(t, call.name+" with "+try.scope, call.err, connect.CodePermissionDenied)
			}
		}
	}
}

// TestNodeKeys_OpenTheRegistryAlone tries every kind of key at the registry, and a node key at every other door.
func TestNodeKeys_OpenTheRegistryAlone(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx := t.Context()
	node, gone := mintNode(t, s, "mac", "mac"), mintNode(t, s, "gone", "mac")
	if _, err := s.Admin.RevokeNodeKey(ctx, &ktmsv1.RevokeNodeKeyRequest{Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	client, err := s.Admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "client", Scopes: []string{"generate", "admin"}})
	if err != nil {
		t.Fatal(err)
	}
	protocols := map[string][]connecthttp.Option{"connect": nil, "connect-json": {connecthttp.WithProtoJSON()},
		"grpc": {connecthttp.WithGRPC()}, "grpc-web": {connecthttp.WithGRPCWeb()}}
	for name, options := range protocols {
		wantBeat(t, name+" a right key", beat(t, s, node, options...))
		wantCode(t, name+" no key", beat(t, s, "", options...), connect.CodeUnauthenticated, "missing API key")
		wantCode(t, name+" a wrong key", beat(t, s, "ktms_node_00", options...), connect.CodeUnauthenticated)
		wantCode(t, name+" a revoked key", beat(t, s, gone, options...), connect.CodeUnauthenticated)
		wantCode(t, name+" a client key", beat(t, s, client.GetPlainKey(), options...), connect.CodePermissionDenied, "only a node key", "MintNodeKey")
		wantCode(t, name+" the bootstrap key", beat(t, s, servertest.AdminKey, options...), connect.CodePermissionDenied, "only a node key")

		conn := s.Client(t, node, options...)
		const why = `registers the node "mac"`
		_, err := ktmsv1connect.NewGatewayServiceClient(conn).GenerateText(ctx, lowRequest)
		wantCode(t, name+" text", err, connect.CodePermissionDenied, why)
		stream, err := ktmsv1connect.NewGatewayServiceClient(conn).GenerateTextStream(ctx, &ktmsv1.GenerateTextStreamRequest{Request: lowRequest})
		if err == nil {
			_, err = stream.Receive()
		}
		wantCode(t, name+" a stream", err, connect.CodePermissionDenied, why)
		_, err = ktmsv1connect.NewAdminServiceClient(conn).ListNodeKeys(ctx, &ktmsv1.ListNodeKeysRequest{})
		wantCode(t, name+" a read", err, connect.CodePermissionDenied, why)
		_, err = ktmsv1connect.NewAdminServiceClient(conn).MintNodeKey(ctx, &ktmsv1.MintNodeKeyRequest{Name: "x", NodeId: "x"})
		wantCode(t, name+" a write", err, connect.CodePermissionDenied, why)
	}
	for _, path := range []string{"/v1/models", "/v1/models/x", "/v1/chat/completions", "/v1/capabilities"} {
		code, _, body := request(t, http.MethodGet, s.HTTP+path, node, "")
		if code != http.StatusForbidden || !strings.Contains(body, "insufficient_scope") || !strings.Contains(body, "registers the node") {
			t.Errorf("%s: %d %s", path, code, body)
		}
		if code, _, body := request(t, http.MethodGet, s.HTTP+path, gone, ""); code != http.StatusUnauthorized {
			t.Errorf("%s with a revoked key: %d %s", path, code, body)
		}
	}
}

// TestNodeKeys_AreReplacedWithoutAGap hands out a node's next key before its last one goes.
func TestNodeKeys_AreReplacedWithoutAGap(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	last, next := mintNode(t, s, "mac", "mac"), mintNode(t, s, "mac-2", "mac")
	wantBeat(t, "the last key", beat(t, s, last))
	wantBeat(t, "the next key", beat(t, s, next))
	if _, err := s.Admin.RevokeNodeKey(t.Context(), &ktmsv1.RevokeNodeKeyRequest{Name: "mac"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "the last key, revoked", beat(t, s, last), connect.CodeUnauthenticated)
	wantBeat(t, "the next key", beat(t, s, next))
}

func TestNodeKeys_ReplicasFollowWithinASecond(t *testing.T) {
	a, b := replicas(t)
	key := mintNode(t, a, "mac", "mac")
	onB := func() error { return beat(t, b, key) }
	storetest.Eventually(t, time.Second, "a node key made on A opens the registry of B", func() bool { return onB() == nil })
	if _, err := a.Admin.RevokeNodeKey(t.Context(), &ktmsv1.RevokeNodeKeyRequest{Name: "mac"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "A refuses it at once", beat(t, a, key), connect.CodeUnauthenticated)
	storetest.Eventually(t, time.Second, "B refuses the revoked key", func() bool { return connect.CodeOf(onB()) == connect.CodeUnauthenticated })
}
