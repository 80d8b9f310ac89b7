package anthropic

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

var someTarget = target("claude-opus-5-5")

func TestFinishReasons(t *testing.T) {
	for _, c := range []struct {
		reason    string
		calls     bool
		ours, raw string
	}{
		{"end_turn", false, "stop", "end_turn"}, {"end_turn", true, "tool_calls", "end_turn"},
		{"stop_sequence", false, "stop", "stop_sequence"}, {"stop_sequence", true, "tool_calls", "stop_sequence"},
		{"tool_use", true, "tool_calls", "tool_use"}, {"pause_turn", false, "stop", "pause_turn"},
		{"max_tokens", true, "length", "max_tokens"}, {"model_context_window_exceeded", false, "length", "model_context_window_exceeded"},
		{"refusal", false, "content_filter", "refusal"}, {"refusal", true, "content_filter", "refusal"},
		{"new", false, "stop", "new"}, {"new", true, "tool_calls", "new"}, {"stop", false, "stop", ""}, {"length", true, "length", ""},
	} {
		if ours, raw := finish(c.reason, c.calls); ours != c.ours || raw != c.raw {
			t.Errorf("%+v: %q %q", c, ours, raw)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		name, start, end string
		want             *ktmsv1.TokensUsage
	}{
		{"the example of the reference", `{"input_tokens":12,"cache_creation_input_tokens":0,"cache_read_input_tokens":2048,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},` +
			`"output_tokens":40,"output_tokens_details":{"thinking_tokens":25},"server_tool_use":{"web_search_requests":0},"service_tier":"standard","speed":"standard"}`, "",
			&ktmsv1.TokensUsage{Input: 2060, Output: 40, CacheRead: 2048, Reasoning: 25}},
		{"cumulative, the input repeated", `{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}`,
			`{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":30,"output_tokens":17}`,
			&ktmsv1.TokensUsage{Input: 45, Output: 17, CacheRead: 5, CacheWrite: 10, CacheWrite_1H: 20}},
		{"cumulative, the output alone", `{"input_tokens":10,"output_tokens":1}`, `{"output_tokens":17,"input_tokens":null}`, &ktmsv1.TokensUsage{Input: 10, Output: 17}},
		{"no split", `{"input_tokens":1,"cache_creation_input_tokens":7,"output_tokens":1,"cache_creation":null}`, "", &ktmsv1.TokensUsage{Input: 8, Output: 1, CacheWrite: 7}},
		{"a split alone", `{"input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":7},"output_tokens":1}`, "", &ktmsv1.TokensUsage{Input: 8, Output: 1, CacheWrite_1H: 7}},
		{"a server that writes 0 for what it does not repeat", `{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation":{"ephemeral_1h_input_tokens":7},"output_tokens":1}`,
			`{"input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_1h_input_tokens":0},"output_tokens":17,"output_tokens_details":{"thinking_tokens":0}}`,
			&ktmsv1.TokensUsage{Input: 22, Output: 17, CacheRead: 5, CacheWrite_1H: 7}},
		{"negative", `{"input_tokens":-5,"cache_read_input_tokens":-1,"cache_creation_input_tokens":-1,"output_tokens":-9,"output_tokens_details":{"thinking_tokens":-1}}`, "", &ktmsv1.TokensUsage{}},
		{"more thinking than output", `{"input_tokens":1,"output_tokens":3,"output_tokens_details":{"thinking_tokens":9}}`, "", &ktmsv1.TokensUsage{Input: 1, Output: 3, Reasoning: 3}},
		{"none", "", "", nil},
		{"at the end alone", "", `{"output_tokens":3}`, &ktmsv1.TokensUsage{Output: 3}},
	} {
		start, end := "", ""
		if c.start != "" {
			start = `,"usage":` + c.start
		}
		if c.end != "" {
			end = `,"usage":` + c.end
		}
		got := streamed(t, `{"type":"message_start","message":{"id":"m"`+start+`}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}`+end+`}`, `{"type":"message_stop"}`)
		if !proto.Equal(got.usage, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got.usage, c.want)
		}
		if c.end == "" {
			r, failed := decode(someTarget, nil, []byte(`{"stop_reason":"end_turn"`+start+`}`))
			if failed != nil || !proto.Equal(r.GetUsage(), c.want) {
				t.Errorf("%s, in one piece: %v %v", c.name, r, failed)
			}
		}
	}
}

// joined is a stream put together again.
type joined struct {
	choice *ktmsv1.Choice
	usage  *ktmsv1.TokensUsage
	begun  *ktmsv1.TokensUsage // the input, told at the start
	ids    string
	failed *vendors.Error
}

// join feeds events to a stream, up to its end, and holds the chunks to what every stream promises.
func join(t *testing.T, events ...string) *joined {
	t.Helper()
	s := newStream(someTarget, nil)
	out := &joined{choice: &ktmsv1.Choice{}}
	opaques := 0
	add := func(chunks []*ktmsv1.GenerateTextChunk) {
		for _, c := range chunks {
			out.ids += c.GetVendorResponseId()
			out.choice.Text += c.GetDelta()
			out.choice.Reasoning += c.GetReasoningDelta()
			out.choice.Refusal += c.GetRefusalDelta()
			out.choice.Opaque += c.GetOpaque()
			if c.GetOpaque() != "" {
				opaques++
			}
			if c.GetUsage().GetEstimated() {
				if out.begun != nil || out.usage != nil || vendors.HasContent(c) || c.GetUsage().GetOutput() != 0 {
					t.Fatalf("the input alone: %v", c)
				}
				out.begun = c.GetUsage()
			} else if c.GetUsage() != nil {
				out.usage = c.GetUsage()
			}
			for _, piece := range c.GetToolCallChunks() {
				at, n := int(piece.GetIndex()), len(out.choice.GetToolCalls())
				if at > n || (at == n) != (piece.GetId() != "") || (at == n) != (piece.GetType() != "") {
					t.Fatalf("piece %v after %d calls", piece, n)
				}
				if at == n {
					out.choice.ToolCalls = append(out.choice.ToolCalls, &ktmsv1.ToolCall{Id: piece.GetId(), Name: piece.GetName(), Type: piece.GetType()})
				}
				out.choice.ToolCalls[at].Arguments += piece.GetArguments()
			}
			if c.GetFinishReason() != "" {
				if out.choice.FinishReason != "" {
					t.Fatal("finished twice")
				}
				out.choice.FinishReason, out.choice.RawFinishReason = c.GetFinishReason(), c.GetRawFinishReason()
			}
			if _, err := proto.Marshal(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, event := range events {
		chunks, failed := s.take("", []byte(event))
		add(chunks)
		if out.failed = failed; failed != nil {
			return out
		}
	}
	last, failed := s.end(nil)
	add(last)
	out.failed = failed
	if opaques > 1 {
		t.Fatal("the opaque state came in pieces")
	}
	return out
}

func streamed(t *testing.T, events ...string) *joined {
	t.Helper()
	got := join(t, events...)
	if got.failed != nil {
		t.Fatal(got.failed)
	}
	return got
}

// TestInterleaved: thinking between calls and texts comes back where it stood, byte by byte.
func TestInterleaved(t *testing.T) {
	blocks := []string{
		`{"type":"thinking","thinking":"<first>","signature":"Eq/1+="}`,
		`{"type":"text","text":"Ä one. "}`,
		`{"type":"redacted_thinking","data":"secret=="}`,
		`{"type":"tool_use","id":"toolu_1","name":"f","input":{}}`,
		`{"type":"thinking","thinking":"","signature":"Eq/2+="}`,
		`{"type":"text","text":"two"}`,
		`{"type":"tool_use","id":"toolu_2","name":"f","input":{"z":1.0,"a":"\u2028"}}`,
	}
	response, failed := decode(someTarget, nil, []byte(`{"stop_reason":"tool_use","content":[`+strings.Join(blocks, ",")+`]}`))
	if failed != nil {
		t.Fatal(failed)
	}
	whole := response.GetChoices()[0]
	got := streamed(t,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"<fir"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"st>"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq/1+="}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Ä "}}`,
		`{"type":"a_type_of_the_future","index":1}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"one. "}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":`+blocks[2]+`}`, `{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":`+blocks[3]+`}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"thinking"}}`,
		`{"type":"content_block_delta","index":4,"delta":{"type":"signature_delta","signature":"Eq/2+="}}`, `{"type":"content_block_stop","index":4}`,
		`{"type":"content_block_start","index":5,"content_block":`+blocks[5]+`}`, `{"type":"content_block_stop","index":5}`,
		`{"type":"content_block_start","index":9,"content_block":{"type":"tool_use","id":"toolu_2","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":9,"delta":{"type":"input_json_delta","partial_json":"{\"z\":1.0,"}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}`,
		`{"type":"content_block_delta","index":9,"delta":{"type":"input_json_delta","partial_json":"\"a\":\"\\u2028\"}"}}`,
		`{"type":"content_block_stop","index":3}`, `{"type":"content_block_stop","index":9}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`,
	).choice
	if !proto.Equal(whole, got) {
		t.Errorf("in one piece %v\nstreamed     %v", whole, got)
	}
	history := func(m *ktmsv1.Message) *request {
		return &request{Messages: []*ktmsv1.Message{say(user, "u"), m, result("toolu_2", "2"), result("toolu_1", "1")}, Tools: function()}
	}
	for kind, c := range map[string]*ktmsv1.Choice{"in one piece": whole, "streamed": got} {
		out, _ := encodes(t, someTarget, history(&ktmsv1.Message{Role: assistant, Text: c.GetText(), Reasoning: c.GetReasoning(), Opaque: c.GetOpaque(), ToolCalls: c.GetToolCalls()}))
		want := strings.Join(blocks, ",")
		if !strings.Contains(string(out.body), want) || len(out.dropped) > 0 {
			t.Errorf("%s: dropped %v\n%s\nwant %s", kind, out.dropped, out.body, want)
		}
	}
	// Another text keeps the thinking in front.
	_, w := encodes(t, someTarget, history(&ktmsv1.Message{Role: assistant, Text: "x", Opaque: whole.GetOpaque(), ToolCalls: whole.GetToolCalls()}))
	if !strings.Contains(w.shape(), `assistant: thinking redacted_thinking tool_use thinking text="x" tool_use`) {
		t.Error(w.shape())
	}
}

func TestStreamEnds(t *testing.T) {
	start := `{"type":"message_start","message":{"id":"m","model":"x"}}`
	for name, c := range map[string]struct {
		events []string
		kind   vendors.Kind
		text   string
	}{
		"nothing":              {nil, vendors.Unavailable, "without an answer"},
		"no finish":            {[]string{start, `{"type":"message_stop"}`}, vendors.Unavailable, "before the answer did"},
		"a piece of nothing":   {[]string{start, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`}, vendors.Unavailable, "did not begin"},
		"overloaded":           {[]string{start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, vendors.Unavailable, "Overloaded"},
		"rate":                 {[]string{start, `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`}, vendors.RateLimited, "slow"},
		"prompt is too long":   {[]string{start, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`}, vendors.Overflow, "too long"},
		"billing":              {[]string{start, `{"type":"error","error":{"type":"billing_error","message":"pay"}}`}, vendors.Denied, "pay"},
		"invalid":              {[]string{start, `{"type":"error","error":{"type":"invalid_request_error","message":"a.b: no"}}`}, vendors.Invalid, "no"},
		"not the type of JSON": {[]string{`[]`}, vendors.Unavailable, "not the Messages API"},
	} {
		got := join(t, c.events...)
		if got.failed == nil || got.failed.Kind != c.kind || !strings.Contains(got.failed.Message, c.text) {
			t.Errorf("%s: %v", name, got.failed)
		}
	}
	refused := streamed(t, start, `{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":null,"explanation":"No."}}}`)
	if refused.choice.GetRefusal() != "No." || refused.choice.GetFinishReason() != "content_filter" {
		t.Errorf("%v", refused.choice)
	}
	// Usage that still grows after the finish is told again.
	grown := streamed(t, start, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`, `{"type":"message_delta","delta":{},"usage":{"output_tokens":5}}`)
	if grown.usage.GetOutput() != 5 {
		t.Errorf("%v", grown.usage)
	}
}

func TestSpendLimit(t *testing.T) {
	for code, kind := range map[string]vendors.Kind{"enforced_spend_limit_reached": vendors.Denied, "other": vendors.RateLimited} {
		said := &wireError{Type: "rate_limit_error", Message: "no"}
		said.Details = &struct {
			ErrorCode string `json:"error_code"`
		}{code}
		if got := kindOf(http.StatusTooManyRequests, said); got != kind {
			t.Errorf("%s: %v", code, got)
		}
	}
}

// TestResetTimes: the vendor says when its limits are refilled as times of day.
func TestResetTimes(t *testing.T) {
	res := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: http.NoBody}
	res.Header.Set("Anthropic-Ratelimit-Input-Tokens-Remaining", "0")
	res.Header.Set("Anthropic-Ratelimit-Input-Tokens-Reset", time.Now().Add(time.Hour).Format(time.RFC3339))
	if e := statusError(someTarget, res); e.RetryAfter < 50*time.Minute || e.RetryAfter > time.Hour {
		t.Errorf("%v", e.RetryAfter)
	}
}
