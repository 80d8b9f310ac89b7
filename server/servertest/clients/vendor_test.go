package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What the scripted vendor says.
const (
	hello     = "Hello from upstream."
	city      = `{"city":"Paris","population":2100000}`
	toolsSaid = "The tools said: sunny, noon" // after the second turn
	total     = 12                            // tokens of every answer
	usage     = `"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`
	// forEver asks for a stream that does not end.
	forEver = "for ever"
)

// The scripted vendor's models; any other name answers like good.
const (
	good = "good"
	down = "down" // answers 503
	dies = "dies" // breaks the connection in the middle of a stream
	// vectors embeds.
	vectors = "vectors"
)

// tokenGap paces an endless stream, and maxTokens ends it should nobody leave.
const (
	tokenGap  = 5 * time.Millisecond
	maxTokens = 6000
)

// vendor is the scripted OpenAI: what it answers depends on the request alone.
type vendor struct {
	mu sync.Mutex
	// calls counts requests per model, open the endless streams in progress.
	calls map[string]int
	open  int
}

type vendorRequest struct {
	Model    string
	Stream   bool
	Messages []vendorMessage
	Tools    []struct {
		Type     string
		Function struct {
			Name       string
			Parameters map[string]any
		}
	}
	ResponseFormat *struct {
		Type       string
		JSONSchema struct {
			Name   string
			Schema map[string]any
		} `json:"json_schema"`
	} `json:"response_format"`
}

type vendorMessage struct {
	Role       string
	Content    any
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/state" { // for the clients that run in a process of their own
		v.state(w)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if strings.HasSuffix(r.URL.Path, "/embeddings") {
		embed(w, body)
		return
	}
	var req vendorRequest
	if err := json.Unmarshal(body, &req); err != nil || len(req.Messages) == 0 {
		refuse(w, http.StatusBadRequest, "not understood: %v in %s", err, body)
		return
	}
	v.mu.Lock()
	v.calls[req.Model]++
	v.mu.Unlock()
	last := req.Messages[len(req.Messages)-1]
	switch {
	case req.Model == down:
		refuse(w, http.StatusServiceUnavailable, "overloaded")
	case req.Model == dies && req.Stream:
		tell(w, `{"role":"assistant","content":"Hel"}`)
		panic(http.ErrAbortHandler)
	case last.Content == forEver && req.Stream:
		v.endless(w, r)
	case last.Role == "tool":
		secondTurn(w, &req)
	case len(req.Tools) > 0:
		callTools(w, &req)
	case req.ResponseFormat != nil && req.ResponseFormat.Type == "json_schema":
		if f := req.ResponseFormat.JSONSchema; f.Name != "city" || f.Schema["type"] != "object" || f.Schema["properties"] == nil {
			refuse(w, http.StatusBadRequest, "no schema arrived: %s", body)
			return
		}
		say(w, req.Stream, city)
	default:
		say(w, req.Stream, hello)
	}
}

// embed gives a text the vector of its length, its place and a half, and the last one first: the index counts.
func embed(w http.ResponseWriter, body []byte) {
	var req struct {
		Input      []string
		Dimensions int
	}
	if err := json.Unmarshal(body, &req); err != nil || len(req.Input) == 0 {
		refuse(w, http.StatusBadRequest, "not understood: %v in %s", err, body)
		return
	}
	var data []string
	for i, text := range req.Input {
		data = append([]string{fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[%d,%d,0.5]}`, i, len(text), i)}, data...)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[%s],"model":"v","usage":{"prompt_tokens":6,"total_tokens":6}}`, strings.Join(data, ","))
}

func (v *vendor) state(w io.Writer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := json.NewEncoder(w).Encode(struct {
		Calls map[string]int `json:"calls"`
		Open  int            `json:"open"`
	}{v.calls, v.open}); err != nil {
		panic(err) // the client's test fails then
	}
}

// seen is how often a model was asked.
func (v *vendor) seen(model string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[model]
}

// streaming reports whether an endless stream is in progress.
func (v *vendor) streaming() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open > 0
}

func (v *vendor) count(change int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open += change
}

// endless streams until its caller is gone.
func (v *vendor) endless(w http.ResponseWriter, r *http.Request) {
	v.count(1)
	defer v.count(-1)
	pace := time.NewTicker(tokenGap)
	defer pace.Stop()
	for range maxTokens {
		tell(w, `{"role":"assistant","content":"on "}`)
		select {
		case <-r.Context().Done():
			return
		case <-pace.C:
		}
	}
}

func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"server_error","param":null,"code":null}}`, fmt.Sprintf(format, args...))
}

func say(w http.ResponseWriter, stream bool, text string) {
	if !stream {
		answer(w, fmt.Sprintf(`{"role":"assistant","content":%q}`, text), "stop")
		return
	}
	for word := range strings.SplitAfterSeq(text, " ") {
		tell(w, fmt.Sprintf(`{"role":"assistant","content":%q}`, word))
	}
	end(w, "stop")
}

// callTools asks for two tools at once; their arguments arrive in pieces.
func callTools(w http.ResponseWriter, req *vendorRequest) {
	if len(req.Tools) != 2 || req.Tools[0].Function.Name != "weather" || req.Tools[0].Function.Parameters["type"] != "object" {
		refuse(w, http.StatusBadRequest, "the tools did not arrive: %+v", req.Tools)
		return
	}
	if !req.Stream {
		answer(w, `{"role":"assistant","content":null,"tool_calls":[`+
			`{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}},`+
			`{"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]}`, "tool_calls")
		return
	}
	for _, delta := range []string{
		`{"role":"assistant","content":null}`,
		`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"\"Paris\"}"}}]}`,
		`{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"time","arguments":""}}]}`,
		`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}`,
	} {
		tell(w, delta)
	}
	end(w, "tool_calls")
}

// secondTurn answers when both calls and both results came back intact.
func secondTurn(w http.ResponseWriter, req *vendorRequest) {
	n := len(req.Messages)
	if n < 4 {
		refuse(w, http.StatusBadRequest, "a second turn of %d messages", n)
		return
	}
	calls, results := req.Messages[n-3].ToolCalls, req.Messages[n-2:]
	if len(calls) != 2 || calls[0].ID != "call_1" || calls[0].Function.Arguments != `{"city":"Paris"}` || calls[1].ID != "call_2" ||
		calls[1].Function.Name != "time" || results[0].ToolCallID != "call_1" || results[1].ToolCallID != "call_2" {
		refuse(w, http.StatusBadRequest, "the turn did not arrive: %+v", req.Messages)
		return
	}
	say(w, req.Stream, fmt.Sprintf("The tools said: %v, %v", results[0].Content, results[1].Content))
}

func answer(w http.ResponseWriter, message, reason string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"good-2026-01-01","choices":[{"index":0,"message":%s,"finish_reason":%q}],%s}`,
		message, reason, usage)
}

// tell sends one delta of a stream.
func tell(w http.ResponseWriter, delta string) {
	event(w, `{"id":"x","model":"good-2026-01-01","choices":[{"index":0,"delta":`+delta+`,"finish_reason":null}]}`)
}

func end(w http.ResponseWriter, reason string) {
	event(w, `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"`+reason+`"}]}`)
	event(w, `{"id":"x","choices":[],`+usage+`}`)
	event(w, "[DONE]")
}

func event(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}
