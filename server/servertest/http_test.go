package servertest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
)

// scripted is a vendor that answers every call with the same body.
func scripted(t *testing.T, body string) string {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(upstream.Close)
	return upstream.URL
}

// request makes one HTTP call and returns status, headers and body.
func request(t *testing.T, method, url, key, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func TestDoorsRefuseStrangersInTheirOwnShape(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	minted, err := s.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "reader", Scopes: []string{"admin:read"}})
	if err != nil {
		t.Fatal(err)
	}
	protocols := map[string][]connecthttp.Option{"connect": nil, "connect-json": {connecthttp.WithProtoJSON()},
		"grpc": {connecthttp.WithGRPC()}, "grpc-web": {connecthttp.WithGRPCWeb()}}
	for _, try := range []struct {
		name, key string
		code      connect.Code
		http      int
		openai    string
	}{
		{"without a key", "", connect.CodeUnauthenticated, 401, "invalid_api_key"},
		{"with a wrong key", "ktms_00000000000000000000000000000000", connect.CodeUnauthenticated, 401, "invalid_api_key"},
		{"with the wrong scope", minted.GetPlainKey(), connect.CodePermissionDenied, 403, "insufficient_scope"},
	} {
		for name, options := range protocols {
			client := s.Client(t, try.key, options...)
			_, err := ktmsv1connect.NewGatewayServiceClient(client).GenerateText(t.Context(), lowRequest)
			wantCode(t, name+" unary "+try.name, err, try.code)
			stream, err := ktmsv1connect.NewGatewayServiceClient(client).GenerateTextStream(t.Context(), &ktmsv1.GenerateTextStreamRequest{Request: lowRequest})
			if err == nil {
				_, err = stream.Receive()
			}
			wantCode(t, name+" stream "+try.name, err, try.code)
			_, err = ktmsv1connect.NewAdminServiceClient(client).MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "x", Scopes: []string{"admin"}})
			wantCode(t, name+" admin "+try.name, err, try.code)
			_, err = ktmsv1connect.NewNodeRegistryServiceClient(client).Heartbeat(t.Context(), &ktmsv1.HeartbeatRequest{NodeId: "x"})
			wantCode(t, name+" nodes "+try.name, err, try.code)
		}
		for _, call := range [][2]string{{http.MethodPost, "/v1/chat/completions"}, {http.MethodGet, "/v1/models"}, {http.MethodGet, "/v1/models/x"}, {http.MethodGet, "/nowhere"}} {
			code, header, body := request(t, call[0], s.HTTP+call[1], try.key, "this is not even JSON")
			var shape struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal([]byte(body), &shape); err != nil || code != try.http || shape.Error.Code != try.openai || shape.Error.Message == "" {
				t.Errorf("%s %s %s: got %d %s", call[0], call[1], try.name, code, body)
			}
			if try.http == 401 && header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: no WWW-Authenticate", call[0], call[1])
			}
		}
	}
}

func TestKeylessPaths(t *testing.T) {
	options := servertest.Defaults(t)
	options.CORSOrigins = []string{"https://console.example.com"}
	s := servertest.Start(t, options)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, _, body := request(t, http.MethodGet, s.HTTP+path, "", ""); code != 200 || !strings.Contains(body, `"status"`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	health := s.GRPC + "/grpc.health.v1.Health/Check"
	if code, _, body := request(t, http.MethodPost, health, "", `{"service":"ktms.v1.GatewayService"}`); code != 200 || !strings.Contains(body, `"SERVING"`) {
		t.Errorf("health: %d %s", code, body)
	}
	if code, _, body := request(t, http.MethodPost, health, "", `{"service":"nobody"}`); code != 404 {
		t.Errorf("health of an unknown service: %d %s", code, body)
	}

	preflight := func(origin string) http.Header {
		_, header, _ := request(t, http.MethodOptions, s.GRPC+"/ktms.v1.GatewayService/GenerateText", "", "", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
		return header
	}
	if got := preflight("https://console.example.com").Get("Access-Control-Allow-Origin"); got != "https://console.example.com" {
		t.Errorf("preflight of the console: %q", got)
	}
	_, header, _ := request(t, http.MethodPost, health, "", "{}", "Origin", "https://console.example.com")
	if got := strings.ToLower(header.Get("Access-Control-Expose-Headers")); !strings.Contains(got, "x-ktms-request-id") || !strings.Contains(got, "x-ratelimit-remaining-tokens") {
		t.Errorf("a console may read %q", got)
	}
	if got := preflight("https://evil.example.com").Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("preflight of a stranger: %q", got)
	}
}

func TestHTTPDoor_BodiesAndPaths(t *testing.T) {
	options := servertest.Defaults(t)
	options.MaxBody = 1000
	s := servertest.Start(t, options)
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", "http://127.0.0.1:1"), servertest.Model("org/n", "http://127.0.0.1:1")}})
	chat := s.HTTP + "/v1/chat/completions"
	for _, test := range []struct {
		name, method, url, body string
		code                    int
		errorCode, param        string
	}{
		{"announced too large", "POST", chat, strings.Repeat(" ", 1001), 413, "body_too_large", ""},
		{"not JSON", "POST", chat, "{", 400, "bad_request", ""},
		{"empty", "POST", chat, "", 400, "bad_request", ""},
		{"a wrong type", "POST", chat, `{"model":"m","messages":[{"role":"user","content":7}]}`, 400, "bad_request", "messages[0].content"},
		{"no messages", "POST", chat, `{"model":"m"}`, 400, "bad_request", "messages"},
		{"an unknown role", "POST", chat, `{"model":"m","messages":[{"role":"robot","content":"x"}]}`, 400, "bad_request", "messages[0].role"},
		{"an odd placement", "POST", chat, `{"model":"auto:moon","messages":[{"role":"user","content":"x"}]}`, 400, "bad_request", "model"},
		{"a tool message without its call", "POST", chat, `{"model":"m","messages":[{"role":"tool","content":"x"}]}`, 400, "bad_request", "messages[0]"},
		{"max_tokens 0", "POST", chat, `{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]}`, 400, "bad_request", "max_tokens"},
		{"an unknown path", "POST", s.HTTP + "/v1/nothing", "{}", 404, "unknown_url", ""},
		{"a wrong method", "GET", chat, "", 405, "method_not_allowed", ""},
		{"not built", "POST", s.HTTP + "/v1/audio/speech", "{}", 501, "unimplemented", ""},
		{"an unknown model", "GET", s.HTTP + "/v1/models/zzz", "", 404, "model_not_found", "model"},
	} {
		code, header, body := request(t, test.method, test.url, key, test.body)
		if again := header.Get("X-Should-Retry"); (again == "false") != (code == 501) {
			t.Errorf("%s: x-should-retry %q with %d", test.name, again, code)
		}
		var shape struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		if err := json.Unmarshal([]byte(body), &shape); err != nil {
			t.Errorf("%s: %v in %s", test.name, err, body)
			continue
		}
		param := ""
		if shape.Error.Param != nil {
			param = *shape.Error.Param
		}
		if code != test.code || shape.Error.Code != test.errorCode || param != test.param || shape.Error.Message == "" {
			t.Errorf("%s: got %d %s, want %d %s about %q", test.name, code, body, test.code, test.errorCode, test.param)
		}
	}
	code, _, body := request(t, http.MethodGet, s.HTTP+"/v1/models", key, "")
	if want := `{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"openai"},{"id":"org/n","object":"model","created":0,"owned_by":"openai"}]}`; code != 200 || body != want {
		t.Errorf("models: %d %s", code, body)
	}
	if code, _, body := request(t, http.MethodGet, s.HTTP+"/v1/models/org/n", key, ""); code != 200 || !strings.Contains(body, `"org/n"`) {
		t.Errorf("a model with a slash: %d %s", code, body)
	}
	// A body without an announced length is cut off as soon as it is too long.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, chat, io.MultiReader(bytes.NewReader(make([]byte, 2000))))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("an unannounced large body: %d", resp.StatusCode)
	}
}

func TestHTTPDoor_Headers(t *testing.T) {
	local := scripted(t, `{"choices":[{"index":0,"message":{"role":"assistant","content":"here"},"finish_reason":"stop"}]}`)
	cloud := scripted(t, `{"choices":[{"index":0,"message":{"role":"assistant","content":"there"},"finish_reason":"stop"}]}`)
	s := servertest.Start(t, servertest.Defaults(t))
	node := servertest.Model("node", local)
	node.Vendor = "ollama"
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("cloud", cloud), node}})
	for _, test := range []struct {
		name, model, body string
		headers           []string
		vendor, placement string
		mode              string
	}{
		{"the default prefers nodes", "auto", "", nil, "ollama", "nodes_first", "auto-default"},
		{"the suffix", "auto:cloud-only:high", "", nil, "openai", "cloud_only", "auto-effort"},
		{"the body beats the suffix", "auto:cloud-only", `"placement":"nodes_only",`, nil, "ollama", "nodes_only", "auto-default"},
		{"the header beats the body", "auto", `"placement":"nodes_only",`, []string{"X-KTMS-Placement", "cloud_first"}, "openai", "cloud_first", "auto-default"},
		{"the old header", "auto", "", []string{"X-LLM-Proxy-Placement", "cloud_only"}, "openai", "cloud_only", "auto-default"},
		{"the new header beats the old", "auto", "", []string{"X-LLM-Proxy-Placement", "cloud_only", "X-KTMS-Placement", "private"}, "ollama", "nodes_only", "auto-default"},
		{"reasoning_effort pins the effort", "auto", `"reasoning_effort":"low",`, nil, "ollama", "nodes_first", "auto-effort"},
		{"an exact model", "cloud", "", nil, "openai", "nodes_first", "override"},
	} {
		body := `{"model":"` + test.model + `",` + test.body + `"messages":[{"role":"user","content":"x"}]}`
		code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, body, test.headers...)
		got := [3]string{header.Get("X-KTMS-Vendor"), header.Get("X-KTMS-Placement"), header.Get("X-KTMS-Route-Mode")}
		if want := [3]string{test.vendor, test.placement, test.mode}; code != 200 || got != want {
			t.Errorf("%s: got %d %v, want %v: %s", test.name, code, got, want, text)
		}
		if header.Get("X-LLM-Proxy-Vendor") != test.vendor || header.Get("Deprecation") != "true" || header.Get("Sunset") == "" || header.Get("Warning") == "" {
			t.Errorf("%s: the old names are missing: %v", test.name, header)
		}
	}
	counted := metric(t, s, "ktms_legacy_headers_requests_total", "")
	if counted != 2 {
		t.Errorf("old headers counted: %v, want 2", counted)
	}
}

func TestHTTPDoor_WithoutLegacyNames(t *testing.T) {
	options := servertest.Defaults(t)
	options.LegacyHeaders = false
	s := servertest.Start(t, options)
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m",
		scripted(t, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`))}})
	code, header, _ := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key,
		`{"model":"auto","messages":[{"role":"user","content":"x"}]}`, "X-LLM-Proxy-Placement", "nodes_only")
	if code != 200 || header.Get("X-LLM-Proxy-Vendor") != "" || header.Get("Deprecation") != "" {
		t.Errorf("got %d %v", code, header)
	}
}
