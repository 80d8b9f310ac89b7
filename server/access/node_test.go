package access

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

func TestAuthenticate_ANodeKeyBringsItsNode(t *testing.T) {
	w := newWorld(t, time.Minute)
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	w.db.putNode("ktms_node_1", func(k *store.NodeKey) {
		k.Name, k.NodeID, k.AllowedModels, k.AllowedCIDRs = "annas key", "anna-mac", []string{"gemma"}, cidrs
	})
	got, err := w.Authenticate(t.Context(), "ktms_node_1")
	want := &caller.Caller{KeyID: "ktms_node_1", KeyName: "annas key", NodeID: "anna-mac", Scopes: []string{caller.ScopeNode},
		AllowedModels: []string{"gemma"}, AllowedCIDRs: cidrs}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestApply_NodeKeysRevokedAndMinted(t *testing.T) {
	w := newWorld(t, time.Minute)
	hash := w.db.putNode("ktms_node_a", nil)
	w.expect(t, "ktms_node_a", ok)
	w.expect(t, "ktms_node_a", ok)
	if got := w.db.count(); got != 1 {
		t.Errorf("read %d times, want once", got)
	}
	w.db.putNode("ktms_node_a", func(k *store.NodeKey) { k.RevokedAt = w.now })
	w.Apply(store.Change{KeyHashes: [][32]byte{hash}})
	w.expect(t, "ktms_node_a", status.Unauthenticated)

	w.expect(t, "ktms_node_new", status.Unauthenticated) // remembered as unknown
	hash = w.db.putNode("ktms_node_new", nil)
	w.Apply(store.Change{KeyHashes: [][32]byte{hash}})
	w.expect(t, "ktms_node_new", ok)
}

func TestOutage_NodeKeysOutliveItAsClientKeysDo(t *testing.T) {
	w := newWorld(t, 5*time.Minute)
	w.db.putNode("ktms_node_a", nil)
	w.db.putNode("ktms_node_b", nil)
	w.expect(t, "ktms_node_a", ok)
	w.db.set(true)
	w.pass(4*time.Minute, false)
	w.expect(t, "ktms_node_a", ok)
	w.expect(t, "ktms_node_b", status.AuthUnavailable)
	w.pass(2*time.Minute, false)
	w.expect(t, "ktms_node_a", status.AuthUnavailable)
}

// TestMiddleware_TheWrongKindOfKeyIsToldWhatItIsFor reads the refusals as their callers do.
func TestMiddleware_TheWrongKindOfKeyIsToldWhatItIsFor(t *testing.T) {
	w := newWorld(t, 0)
	w.db.put("ktms_client", nil)
	w.db.putNode("ktms_node_1", nil)
	for _, test := range []struct {
		doors     *Doors
		path, key string
		want      []string
	}{
		{RPCDoors(), "/ktms.v1.NodeRegistryService/Heartbeat", "ktms_client", []string{"only a node key (ktms_node_…)", "MintNodeKey"}},
		{RPCDoors(), "/ktms.v1.GatewayService/GenerateText", "ktms_node_1", []string{`registers the node`, "mac", "use a client key"}},
		{RPCDoors(), "/ktms.v1.AdminService/ListNodes", "ktms_node_1", []string{`registers the node`, "use a client key"}},
		{OpenAIDoors(), "/v1/chat/completions", "ktms_node_1", []string{`registers the node`, "use a client key", "insufficient_scope"}},
	} {
		handler := w.Middleware(test.doors, http.NotFoundHandler())
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, http.NoBody)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+test.key)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, req)
		for _, want := range test.want {
			if !strings.Contains(recorder.Body.String(), want) {
				t.Errorf("%s with %s: %q does not say %q", test.path, test.key, recorder.Body, want)
			}
		}
	}
}
