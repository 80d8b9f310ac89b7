package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
)

// vendor is the scripted OpenAI: what it answers depends on the request alone.
type vendor struct{ calls atomic.Int64 }

type wireRequest struct {
	Model    string
	Stream   bool
	Messages []struct {
		Role    string
		Content any
	}
	Tools  []any
	Format *struct{ Type string } `json:"response_format"`
}

const usageJSON = `"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.calls.Add(1)
	body, _ := io.ReadAll(r.Body)
	var req wireRequest
	if err := json.Unmarshal(body, &req); err != nil || len(req.Messages) == 0 {
		http.Error(w, `{"error":{"message":"not understood","type":"invalid_request_error","param":null,"code":null}}`, http.StatusBadRequest)
		return
	}
	if req.Model == "broken" {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"overloaded","type":"server_error","param":null,"code":null}}`)
		return
	}
	last := req.Messages[len(req.Messages)-1]
	switch {
	case req.Stream && fmt.Sprint(last.Content) == "for ever":
		v.endless(w, r)
	case len(req.Tools) > 0 && last.Role != "tool":
		v.tools(w, req.Stream)
	case req.Format != nil && req.Format.Type == "json_schema":
		v.text(w, req.Stream, `{"city":"Paris","population":2100000}`)
	case last.Role == "tool":
		v.text(w, req.Stream, "It is sunny, said the tool.")
	default:
		v.text(w, req.Stream, "Hello from upstream.")
	}
}

func (v *vendor) text(w http.ResponseWriter, stream bool, text string) {
	if !stream {
		_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],%s}`, text, usageJSON)
		return
	}
	begin(w)
	for word := range strings.SplitAfterSeq(text, " ") {
		event(w, fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`, word))
	}
	end(w, "stop")
}

const (
	firstCall  = `{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}}`
	secondCall = `{"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}`
)

func (v *vendor) tools(w http.ResponseWriter, stream bool) {
	if !stream {
		_, _ = fmt.Fprintf(w, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[%s,%s]},"finish_reason":"tool_calls"}],%s}`, firstCall, secondCall, usageJSON)
		return
	}
	begin(w)
	for _, delta := range []string{
		`{"role":"assistant","content":null}`,
		`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}`,
		`{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"\"Paris\"}"}}]}`,
	} {
		event(w, `{"id":"x","choices":[{"index":0,"delta":`+delta+`,"finish_reason":null}]}`)
	}
	end(w, "tool_calls")
}

// endless streams until its caller is gone.
func (v *vendor) endless(w http.ResponseWriter, r *http.Request) {
	begin(w)
	for range 100_000 {
		if r.Context().Err() != nil {
			return
		}
		event(w, `{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"on "},"finish_reason":null}]}`)
	}
}

func begin(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

func event(w http.ResponseWriter, data string) {
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}

func end(w http.ResponseWriter, reason string) {
	event(w, `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"`+reason+`"}]}`)
	event(w, `{"id":"x","choices":[],`+usageJSON+`}`)
	event(w, "[DONE]")
}

// world is the server behind which the scripted vendor stands.
type world struct {
	*servertest.Instance
	vendor *vendor
	key    string
	// reader is a key without the scope generate.
	reader string
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{vendor: &vendor{}}
	upstream := httptest.NewServer(w.vendor)
	t.Cleanup(upstream.Close)
	w.Instance = servertest.Start(t, servertest.Defaults(t))
	w.key = w.Configure(t, servertest.Setup{
		Models: []*ktmsv1.ModelSpec{servertest.Model("good", upstream.URL), servertest.Model("broken", upstream.URL)},
		Rules:  []*ktmsv1.RuleSpec{{Name: "all", Priority: 1, Use: []string{"good"}, Enabled: true}},
	})
	minted, err := w.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "reader", Scopes: []string{"admin:read"}})
	if err != nil {
		t.Fatal(err)
	}
	w.reader = minted.GetPlainKey()
	return w
}
