package servertest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors"
)

const okAnswer = `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// recorder is a vendor that keeps what it was sent and answers with what each handler says, one after another; the
// last one repeats.
type recorder struct {
	mu       sync.Mutex
	handlers []http.HandlerFunc
	bodies   []string
	headers  []http.Header
}

func record(t *testing.T, handlers ...http.HandlerFunc) (*recorder, string) {
	t.Helper()
	r := &recorder{handlers: handlers}
	upstream := httptest.NewServer(r)
	t.Cleanup(upstream.Close)
	return r, upstream.URL
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.bodies = append(r.bodies, string(body))
	r.headers = append(r.headers, req.Header)
	handler := r.handlers[min(len(r.bodies), len(r.handlers))-1]
	r.mu.Unlock()
	handler(w, req)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

func says(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func TestEveryFieldOfAChatRequestReachesTheVendor(t *testing.T) {
	vendor, base := record(t, says(200, okAnswer))
	s := servertest.Start(t, servertest.Defaults(t))
	spec := servertest.Model("m", base)
	spec.Capabilities = []string{"vision", "audio_input", "pdf_input"}
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{spec}})
	sent, err := os.ReadFile("testdata/every_field.json")
	if err != nil {
		t.Fatal(err)
	}
	code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, string(sent))
	if code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	if dropped := header.Get("X-KTMS-Dropped-Params"); dropped != "" {
		t.Errorf("dropped: %s", dropped)
	}
	want, got := map[string]any{}, map[string]any{}
	if json.Unmarshal(sent, &want) != nil || json.Unmarshal([]byte(vendor.bodies[0]), &got) != nil {
		t.Fatal("not JSON")
	}
	// What Keystone itself acts on stays here.
	delete(want, "metadata")
	delete(want, "user")
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s:\n sent %v\n came %v", name, want[name], got[name])
		}
	}
	for name := range got {
		if _, known := want[name]; !known {
			t.Errorf("%s came from nowhere: %v", name, got[name])
		}
	}
	// Beyond equality: property order and long integers.
	for _, verbatim := range []string{`{"zeta":{"type":"integer","maximum":9007199254740993},"alpha":{"type":"string"}}`, `"x_new":{"b":1,"a":[2,9007199254740993]}`} {
		if !strings.Contains(vendor.bodies[0], verbatim) {
			t.Errorf("%s did not travel verbatim in %s", verbatim, vendor.bodies[0])
		}
	}
}

func TestNothingOfTheCallersHeadersReachesTheVendor(t *testing.T) {
	vendor, base := record(t, says(200, okAnswer))
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base)}})
	code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
		"Cookie", "canary", "X-Api-Key", "canary", "Api-Key", "canary", "X-Forwarded-For", "canary", "X-KTMS-Placement", "nodes_first",
		"OpenAI-Organization", "canary", "X-Custom", "canary", "Forwarded", "canary", "Proxy-Authorization", "canary", "User-Agent", "canary")
	if code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	allowed := map[string]bool{"Accept": true, "Accept-Encoding": true, "Authorization": true, "Content-Length": true, "Content-Type": true, "User-Agent": true}
	for name, values := range vendor.headers[0] {
		if !allowed[name] || strings.Contains(strings.Join(values, " "), "canary") && name != "Authorization" {
			t.Errorf("the vendor got %s: %v", name, values)
		}
	}
	if got := vendor.headers[0].Get("Authorization"); got != "Bearer "+servertest.VendorKey {
		t.Errorf("the vendor got the credential %q", got)
	}
}

func TestFallback_AFailureAfterThePreambleStaysHidden(t *testing.T) {
	preamble := "data: {\"id\":\"a\",\"model\":\"A\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	broken := says(200, preamble+"data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n", "Content-Type", "text/event-stream")
	a, baseA := record(t, broken)
	_, baseB := record(t, says(200, "data: {\"id\":\"b\",\"model\":\"B\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"fine\"},\"finish_reason\":null}]}\n\n"+
		"data: {\"id\":\"b\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", "Content-Type", "text/event-stream"))
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("a", baseA), servertest.Model("b", baseB)}})
	code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, chatStream)
	if code != 200 || strings.Contains(text, `"a"`) || strings.Contains(text, "error") || !strings.Contains(text, "fine") || !strings.Contains(text, `"model":"b"`) {
		t.Errorf("the client must see b alone: %d %v %s", code, header, text)
	}
	if a.count() != 2 {
		t.Errorf("a was tried %d times, want the call and one retry", a.count())
	}
}

func TestFallback_WaitsAndPauses(t *testing.T) {
	a, baseA := record(t, says(429, `{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After", "20"))
	b, baseB := record(t, says(200, okAnswer))
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("a", baseA), servertest.Model("b", baseB)}})
	client := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key))
	for range 3 {
		r, err := client.GenerateText(t.Context(), lowRequest)
		if err != nil || r.GetResolvedModel() != "b" {
			t.Fatalf("got %v, %v", r, err)
		}
	}
	if a.count() != 1 || b.count() != 3 {
		t.Errorf("a was called %d times and b %d: a wait of 20 s pauses a at once", a.count(), b.count())
	}
	explained, err := s.Admin.ExplainRoute(t.Context(), &ktmsv1.ExplainRouteRequest{ApiKeyName: "client", Effort: ktmsv1.Effort_EFFORT_LOW})
	if err != nil || explained.GetCandidates()[0].GetReason() != "vendor_paused" {
		t.Errorf("ExplainRoute must show the pause: %v, %v", explained, err)
	}
	override := &ktmsv1.GenerateTextRequest{ModelOverride: "a", Messages: lowRequest.GetMessages()}
	_, err = client.GenerateText(t.Context(), override)
	wantCode(t, "a paused model alone", err, connect.CodeUnavailable, "vendors_unavailable")
	code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"a","messages":[{"role":"user","content":"x"}]}`)
	if code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("over HTTP: %d, Retry-After %q: %s", code, header.Get("Retry-After"), text)
	}
}

func TestATruncatedAnswerOfNoUseIsAnError(t *testing.T) {
	cut := `{"choices":[{"index":0,"message":{"role":"assistant","content":"{\"a\":"},"finish_reason":"length"}]}`
	nothing := `{"choices":[{"index":0,"message":{"role":"assistant","content":"","reasoning_content":"hm"},"finish_reason":"length"}]}`
	for _, test := range []struct {
		name, answer, body string
		code               int
	}{
		{"cut JSON", cut, `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}},`, 400},
		{"cut json_object", cut, `"response_format":{"type":"json_object"},`, 400},
		{"nothing visible", nothing, "", 400},
		{"free text", cut, "", 200},
	} {
		a, baseA := record(t, says(200, test.answer))
		b, baseB := record(t, says(200, okAnswer))
		s := servertest.Start(t, servertest.Defaults(t))
		key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("a", baseA), servertest.Model("b", baseB)}})
		code, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"auto",`+test.body+`"messages":[{"role":"user","content":"x"}]}`)
		if code != test.code || (code == 400) != strings.Contains(text, "output_truncated") || a.count() != 1 || b.count() != 0 {
			t.Errorf("%s: %d after %d+%d calls: %s", test.name, code, a.count(), b.count(), text)
		}
	}
}

func TestStrictParamsRefusesWhatWouldBeDropped(t *testing.T) {
	vendor, base := record(t, says(200, okAnswer))
	s := servertest.Start(t, servertest.Defaults(t))
	spec := servertest.Model("m", base)
	spec.Vendor = vendors.Groq
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{spec}})
	const body = `{"model":"m","logit_bias":{"50256":-100},"messages":[{"role":"user","content":"x"}]}`
	code, header, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, body)
	if code != 200 || header.Get("X-KTMS-Dropped-Params") != "logit_bias" || strings.Contains(vendor.bodies[0], "logit_bias") {
		t.Errorf("by default it is dropped and said: %d %v %s", code, header, text)
	}
	code, _, text = request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, body, "X-KTMS-Strict", "true")
	if code != 400 || !strings.Contains(text, `"param":"logit_bias"`) || vendor.count() != 1 {
		t.Errorf("strict: %d %s", code, text)
	}
}

// safeBuffer is a log that many goroutines write.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestLogsHoldNeitherSecretsNorPrompts(t *testing.T) {
	const prompt = "canary-prompt"
	log := &safeBuffer{}
	options := servertest.Defaults(t)
	options.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := servertest.Start(t, options)
	echo := `{"error":{"message":"Incorrect API key provided: ` + servertest.VendorKey + `","type":"invalid_request_error","code":"invalid_api_key"}}`
	_, bad := record(t, says(401, echo))
	_, garbled := record(t, says(200, `{"choices":[{"`+servertest.VendorKey))
	_, good := record(t, says(200, okAnswer))
	_, failing := record(t, says(500, `{"error":{"message":"cannot process `+prompt+` `+servertest.VendorKey+`"}}`))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("bad", bad), servertest.Model("garbled", garbled),
		servertest.Model("refused", "http://127.0.0.1:1"), servertest.Model("nowhere", "http://ktms.invalid"), servertest.Model("failing", failing), servertest.Model("good", good)}})
	for _, body := range []string{
		`{"model":"auto","messages":[{"role":"user","content":"` + prompt + `"}]}`,
		`{"model":"bad","messages":[{"role":"user","content":"` + prompt + `"}]}`,
		`{"model":"auto","stream":true,"messages":[{"role":"user","content":"` + prompt + `"}]}`,
		`{"model":"auto","temperature":9,"messages":[{"role":"user","content":"` + prompt + `"}]}`,
		`{"model":"auto","messages":[{"role":"user","content":"` + prompt + `"`,
	} {
		_, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, body)
		if strings.Contains(text, servertest.VendorKey) {
			t.Errorf("an answer shows the vendor key: %s", text)
		}
	}
	for _, model := range []string{"refused", "nowhere"} {
		_, _, text := request(t, http.MethodPost, s.HTTP+"/v1/chat/completions", key, `{"model":"`+model+`","messages":[{"role":"user","content":"x"}]}`)
		if strings.Contains(text, "127.0.0.1") || strings.Contains(text, "ktms.invalid") || !strings.Contains(text, "vendors_unavailable") {
			t.Errorf("an answer shows where the vendor is: %s", text)
		}
	}
	_, _, _ = request(t, http.MethodGet, s.HTTP+"/v1/models", key+"x", "")
	written := log.String()
	for what, canary := range map[string]string{"the vendor key": servertest.VendorKey, "the client key": key, "the bootstrap key": servertest.AdminKey, "a prompt": prompt} {
		if i := strings.Index(written, canary); i >= 0 {
			t.Errorf("the log shows %s: …%s…", what, written[max(0, i-200):i+len(canary)])
		}
	}
	if !strings.Contains(written, `"msg":"call"`) || !strings.Contains(written, `"request_id"`) {
		t.Errorf("calls leave no line: %s", written)
	}
}
