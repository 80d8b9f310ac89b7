package access

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/store"
)

// unreadable fails the test when a body is touched.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read before the caller was known")
	return 0, io.EOF
}
func (unreadable) Close() error { return nil }

func TestMiddleware(t *testing.T) {
	w := newWorld(t, 0)
	for plain, scope := range map[string]string{"ktms_generate": caller.ScopeGenerate, "ktms_admin": caller.ScopeAdmin,
		"ktms_read": caller.ScopeAdminRead, "ktms_byhand": caller.ScopeNode} {
		w.db.put(plain, func(k *store.Key) { k.Scopes = []string{scope} })
	}
	w.db.put("ktms_node_client", func(k *store.Key) { k.Scopes = []string{caller.ScopeAdmin} }) // its looks make it a node's
	w.db.putNode("ktms_node_1", nil)
	w.db.putNode("llm_node_1", nil)
	w.db.putNode("ktms_client", nil) // and here a client's
	w.db.putNode("ktms_node_gone", func(k *store.NodeKey) { k.RevokedAt = w.now })
	const (
		generate = "/ktms.v1.GatewayService/GenerateText"
		mint     = "/ktms.v1.AdminService/MintAPIKey"
		get      = "/ktms.v1.AdminService/GetConfig"
		explain  = "/ktms.v1.AdminService/ExplainRoute"
		register = "/ktms.v1.NodeRegistryService/RegisterNode"
		unknown  = "/ktms.v1.AdminService/DropTables"
		chat     = "/v1/chat/completions"
	)
	rpc, openai := RPCDoors("/grpc.health.v1.Health/"), OpenAIDoors()
	for _, test := range []struct {
		doors *Doors
		path  string
		auth  string
		want  int
	}{
		{rpc, generate, "Bearer ktms_generate", 200},
		{rpc, generate, "bearer ktms_generate", 200},
		{rpc, generate, "Bearer ktms_admin", 200},
		{rpc, generate, "Bearer boot", 200},
		{rpc, generate, "Bearer ktms_read", 403},
		{rpc, generate, "", 401},
		{rpc, generate, "Basic ktms_generate", 401},
		{rpc, generate, "ktms_generate", 401},
		{rpc, generate, "Bearer ktms_other", 401},
		{rpc, mint, "Bearer ktms_admin", 200},
		{rpc, mint, "Bearer ktms_read", 403},
		{rpc, mint, "Bearer ktms_generate", 403},
		{rpc, mint, "", 401},
		{rpc, get, "Bearer ktms_read", 200},
		{rpc, get, "Bearer ktms_generate", 403},
		{rpc, explain, "Bearer ktms_read", 200},
		{rpc, register, "Bearer ktms_node_1", 200},
		{rpc, register, "Bearer llm_node_1", 200},
		{rpc, register, "Bearer ktms_generate", 403},
		{rpc, register, "Bearer ktms_read", 403},
		{rpc, register, "Bearer ktms_admin", 403},
		{rpc, register, "Bearer boot", 403},
		{rpc, register, "Bearer ktms_byhand", 403},
		{rpc, register, "Bearer ktms_node_2", 401},
		{rpc, register, "Bearer ktms_node_gone", 401},
		{rpc, register, "Bearer ktms_node_client", 401},
		{rpc, register, "Bearer ktms_client", 401},
		{rpc, register, "", 401},
		{rpc, generate, "Bearer ktms_node_1", 403},
		{rpc, generate, "Bearer ktms_byhand", 403},
		{rpc, mint, "Bearer llm_node_1", 403},
		{rpc, get, "Bearer ktms_node_1", 403},
		{rpc, unknown, "Bearer ktms_node_1", 403},
		{rpc, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "Bearer ktms_node_1", 403},
		{rpc, "/ktms.v1.NodeRegistryService/Unheard", "Bearer ktms_node_1", 403},
		{rpc, mint, "Bearer ktms_node_client", 401},
		{rpc, unknown, "Bearer ktms_read", 403},
		{rpc, unknown, "Bearer ktms_admin", 200},
		{rpc, "/grpc.health.v1.Health/Check", "", 200},
		{rpc, "/grpc.health.v1.HealthX/Check", "", 401},
		{openai, chat, "Bearer ktms_generate", 200},
		{openai, chat, "Bearer ktms_read", 403},
		{openai, chat, "Bearer ktms_node_1", 403},
		{openai, "/v1/models", "Bearer llm_node_1", 403},
		{openai, chat, "Bearer nonsense", 401},
		{openai, chat, "", 401},
	} {
		reached := false
		handler := w.Middleware(test.doors, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, unreadable{t})
		req.Header.Set("Content-Type", "application/json")
		if test.auth != "" {
			req.Header.Set("Authorization", test.auth)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, req)
		if recorder.Code != test.want || reached != (test.want == 200) {
			t.Errorf("%s with %q: got %d (reached %v), want %d", test.path, test.auth, recorder.Code, reached, test.want)
		}
		if test.want == 200 {
			continue
		}
		body, shape := recorder.Body.String(), `"code":"`
		if test.doors == openai {
			shape = `{"error":{"message":"`
		}
		if !strings.Contains(body, shape) || strings.Contains(body, "ktms_o") {
			t.Errorf("%s with %q: the refusal has the wrong shape or repeats the key: %s", test.path, test.auth, body)
		}
	}
}

func TestReadScopeOpensExactlyTheReads(t *testing.T) {
	var reads []string
	for path, scopes := range RPCDoors().scopes {
		if slices.Contains(scopes, caller.ScopeAdminRead) {
			reads = append(reads, strings.TrimPrefix(path, "/ktms.v1.AdminService/"))
		}
	}
	slices.Sort(reads)
	want := []string{
		"ExplainRoute", "GetConfig", "GetOrganization", "GetSpend", "GetTeam", "GetTeamSpend", "ListAPIKeys", "ListModels",
		"ListNodeKeys", "ListNodes", "ListOrganizations", "ListSpendLimits", "ListTeams", "ListUserRateLimits", "ListVendorKeys",
	}
	if !slices.Equal(reads, want) {
		t.Errorf("admin:read opens %v, want %v", reads, want)
	}
}
