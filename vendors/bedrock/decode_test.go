package bedrock

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func TestFinishReasons(t *testing.T) {
	text, call := `{"text":"x"}`, `{"toolUse":{"toolUseId":"i","name":"f","input":{}}}`
	for _, c := range []struct{ reason, content, want string }{
		{"end_turn", text, "stop"}, {"end_turn", "", "stop"}, {"end_turn", call, "tool_calls"}, {"stop_sequence", text, "stop"},
		{"tool_use", call, "tool_calls"}, {"max_tokens", call, "length"}, {"model_context_window_exceeded", text, "length"},
		{"brand_new", text, "stop"}, {"brand_new", call, "tool_calls"}, {"", text, "stop"},
	} {
		r, err := answered(`{"output":{"message":{"content":[` + c.content + `]}},"stopReason":"` + c.reason + `"}`)
		if err != nil || r.GetChoices()[0].GetFinishReason() != c.want || r.GetChoices()[0].GetRawFinishReason() != c.reason {
			t.Errorf("%s after %s: %v %v, want %s", c.reason, c.content, r, err, c.want)
		}
	}
	for reason, kind := range map[string]vendors.Kind{
		"guardrail_intervened": vendors.Blocked, "content_filtered": vendors.Blocked,
		"malformed_model_output": vendors.Unavailable, "malformed_tool_use": vendors.Unavailable,
	} {
		_, err := answered(`{"output":{"message":{"content":[` + text + `]}},"stopReason":"` + reason + `"}`)
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != kind || e.Status != http.StatusOK {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if _, err := answered(`{"output":{"message":{"content":[]}},"stopReason":"brand_new"}`); err == nil {
		t.Error("an unknown reason after nothing passes for an answer")
	}
}

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct{ usage, want string }{
		"plain":            {`"inputTokens":12,"outputTokens":7,"totalTokens":19`, `input: 12 output: 7`},
		"cache":            {`"inputTokens":12,"outputTokens":7,"totalTokens":419,"cacheReadInputTokens":300,"cacheWriteInputTokens":100`, `input: 412 output: 7 cache_read: 300 cache_write: 100`},
		"two lifetimes":    {`"inputTokens":1,"outputTokens":2,"totalTokens":3,"cacheWriteInputTokens":100,"cacheDetails":[{"ttl":"1h","inputTokens":60},{"ttl":"5m","inputTokens":40}]`, `input: 101 output: 2 cache_write: 40 cache_write_1h: 60`},
		"details alone":    {`"inputTokens":1,"outputTokens":2,"totalTokens":3,"cacheDetails":[{"ttl":"1h","inputTokens":60}]`, `input: 61 output: 2 cache_write_1h: 60`},
		"negative numbers": {`"inputTokens":-12,"outputTokens":-7,"totalTokens":1,"cacheReadInputTokens":-5`, ``},
	} {
		want := &ktmsv1.TokensUsage{}
		if err := prototext.Unmarshal([]byte(c.want), want); err != nil {
			t.Fatal(err)
		}
		r, err := answered(strings.TrimSuffix(okBody, "}") + `,"usage":{` + c.usage + `}}`)
		if err != nil || !proto.Equal(r.GetUsage(), want) {
			t.Errorf("%s: %v %v, want %v", name, r.GetUsage(), err, want)
		}
	}
	if r, err := answered(okBody); err != nil || r.Usage != nil {
		t.Errorf("%v %v", r, err)
	}
}

func TestAnswer(t *testing.T) {
	r, err := answered(`{"output":{"message":{"content":[{"citationsContent":{"content":[{"text":"cited "}]}},{"text":"text"},` +
		`{"toolUse":{"toolUseId":"s","name":"web","input":{},"type":"server_tool_use"}},` +
		`{"toolUse":{"toolUseId":"i","name":"f","input":{"z": 1.50,"a":9007199254740993}}}]}},"stopReason":"tool_use",` +
		`"serviceTier":{"type":"flex"},"trace":{"promptRouter":{"invokedModelId":"routed"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := r.GetChoices()[0]
	if c.GetText() != "cited text" || len(c.GetToolCalls()) != 1 || c.GetToolCalls()[0].GetArguments() != `{"z": 1.50,"a":9007199254740993}` ||
		r.GetServiceTier() != "flex" || r.GetVendorModel() != "routed" {
		t.Error(r)
	}
}

// TestToolNames: names that the vendor does not take come back as they were.
func TestToolNames(t *testing.T) {
	long := strings.Repeat("n", 100)
	body, _, err := sent(t, target(testClaude), hello+`tools { name: "files.read:v2" } tools { name: "`+long+`" }`)
	if err != nil || strings.Contains(body, "files.read") || strings.Contains(body, long) {
		t.Fatal(err, body)
	}
	_, rest, _ := strings.Cut(body, `"name":"files_read_v2_`)
	digits, _, _ := strings.Cut(rest, `"`)
	wire := "files_read_v2_" + digits
	c := &carrier{body: []byte(`{"output":{"message":{"content":[{"toolUse":{"toolUseId":"i","name":"` + wire + `","input":{}}}]}},"stopReason":"tool_use"}`)}
	answer, err := New(Options{Transport: c}).Generate(t.Context(), target(testClaude), requested(t, hello+`tools { name: "files.read:v2" }`))
	if err != nil || answer.Response.GetChoices()[0].GetToolCalls()[0].GetName() != "files.read:v2" {
		t.Error(answer, err)
	}
}

// TestReasoning: every block that the vendor wants back comes back, in order, and alike from both kinds of answer.
func TestReasoning(t *testing.T) {
	r, err := answered(`{"output":{"message":{"content":[{"reasoningContent":{"reasoningText":{"text":"<hm>","signature":"sig/1+="}}},` +
		`{"reasoningContent":{"redactedContent":"AAH/"}},{"text":"x"}]}},"stopReason":"end_turn"}`)
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := streamed(t,
		event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"<h"}}}`},
		event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"m>"}}}`},
		event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"sig/1+="}}}`},
		event{"contentBlockDelta", `{"contentBlockIndex":1,"delta":{"reasoningContent":{"redactedContent":"AAH/"}}}`},
		event{"contentBlockDelta", `{"contentBlockIndex":2,"delta":{"text":"x"}}`},
		event{"messageStop", `{"stopReason":"end_turn"}`},
	)
	whole := r.GetChoices()[0]
	if pieces, _ := joined(chunks); err != nil || !proto.Equal(whole, pieces) {
		t.Errorf("%v\n%v %v", whole, pieces, err)
	}
	turn := `messages { role: MESSAGE_ROLE_ASSISTANT text: "x" reasoning: "<hm>" opaque: "` + whole.GetOpaque() + `" } ` + hello
	body, head, err := sent(t, target(testClaude), hello+turn)
	want := `[{"reasoningContent":{"reasoningText":{"signature":"sig/1+=","text":"<hm>"}}},{"reasoningContent":{"redactedContent":"AAH/"}},{"text":"x"}]`
	if err != nil || head.Dropped != nil || !strings.Contains(body, want) {
		t.Errorf("%v %v\n%s", err, head, body)
	}
	if body, head, err := sent(t, target("anthropic.claude-opus-4-7-v1"), hello+turn); err != nil || len(head.Dropped) != 1 || strings.Contains(body, "sig/1") {
		t.Errorf("another model: %v %v\n%s", err, head, body)
	}
}

// TestStream: what the suite does not tell.
func TestStream(t *testing.T) {
	said := event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"x"}}`}
	begun := event{"contentBlockStart", `{"contentBlockIndex":7,"start":{"toolUse":{"toolUseId":"i","name":"f"}}}`}
	t.Run("blocked after content", func(t *testing.T) {
		chunks, err := streamed(t, said, event{"messageStop", `{"stopReason":"guardrail_intervened"}`}, event{"metadata", `{"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}`})
		if c, u := joined(chunks); err != nil || c.GetFinishReason() != "content_filter" || c.GetRawFinishReason() != "guardrail_intervened" || u.GetOutput() != 2 {
			t.Errorf("%v %v %v", c, u, err)
		}
	})
	t.Run("blocked at once", func(t *testing.T) {
		var e *vendors.Error
		if _, err := streamed(t, event{"messageStop", `{"stopReason":"content_filtered"}`}); !errors.As(err, &e) || e.Kind != vendors.Blocked {
			t.Error(err)
		}
	})
	t.Run("a call without arguments", func(t *testing.T) {
		chunks, err := streamed(t, begun, event{"contentBlockDelta", `{"contentBlockIndex":7,"delta":{"toolUse":{"input":""}}}`},
			event{"contentBlockStop", `{"contentBlockIndex":7}`}, event{"messageStop", `{"stopReason":"end_turn"}`})
		if c, _ := joined(chunks); err != nil || len(c.GetToolCalls()) != 1 || c.GetToolCalls()[0].GetArguments() != "{}" || c.GetFinishReason() != "tool_calls" {
			t.Errorf("%v %v", c, err)
		}
	})
	t.Run("a piece of no call", func(t *testing.T) {
		if _, err := streamed(t, event{"contentBlockDelta", `{"contentBlockIndex":7,"delta":{"toolUse":{"input":"{"}}}`}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("unknown events", func(t *testing.T) {
		chunks, err := streamed(t, event{"brandNew", `{}`}, said, event{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"brandNew":{}}}`}, event{"messageStop", `{"stopReason":"end_turn"}`})
		if c, _ := joined(chunks); err != nil || c.GetText() != "x" {
			t.Errorf("%v %v", c, err)
		}
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, body string
		kind       vendors.Kind
	}{
		{429, "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/", `{"message":"slow"}`, vendors.RateLimited},
		{400, "ThrottlingException", `{"message":"Too many tokens per day"}`, vendors.RateLimited},
		{429, "ModelNotReadyException", `{"Message":"wait"}`, vendors.RateLimited},
		{400, "ServiceQuotaExceededException", `{"message":"quota"}`, vendors.Denied},
		{400, "ValidationException", `{"message":"Input is too long for requested model."}`, vendors.Overflow},
		{400, "ValidationException", `{"message":"the model identifier is invalid"}`, vendors.Denied},
		{400, "ValidationException", `{"message":"Malformed input request"}`, vendors.Invalid},
		{403, "UnrecognizedClientException", `{"message":"The security token is invalid"}`, vendors.Denied},
		{400, "ExpiredTokenException", `{"message":"expired"}`, vendors.Denied},
		{424, "ModelErrorException", `{"message":"x","originalStatusCode":500,"resourceName":"r"}`, vendors.Unavailable},
		{408, "ModelTimeoutException", `{"message":"x"}`, vendors.Unavailable},
		{413, "", `<html><title>413 Too Large</title></html>`, vendors.Overflow},
		{503, "", ``, vendors.Unavailable},
	} {
		h := http.Header{"X-Amzn-Errortype": {c.code}, "Retry-After": {"3"}}
		_, err := New(Options{Transport: &carrier{status: c.status, header: h, body: []byte(c.body)}}).Generate(t.Context(), target(testClaude), requested(t, hello))
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != c.kind || e.Status != c.status || e.Message == "" || e.Err != nil || e.RetryAfter != 3*time.Second {
			t.Errorf("%d %s: %+v, want %v", c.status, c.code, e, c.kind)
		}
	}
}
