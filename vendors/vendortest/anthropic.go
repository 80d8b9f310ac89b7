package vendortest

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
)

// Anthropic spells the Messages API.
func Anthropic() Script {
	return Script{
		UnaryType: "application/json", StreamType: "text/event-stream; charset=utf-8", SSE: true,
		Reasoning: true, Signed: true, Refusals: true, CacheWrites: true, CacheWrites1H: true,
		Body: anthropicBody, Stream: anthropicStream,
		Failure: func(message string) string {
			return anthropicFailure("some_error", message)
		},
		Failures: anthropicFailures,
		HiddenFailures: []string{
			anthropicFailure("overloaded_error", "the engine is down"),
			anthropicFailure("api_error", "the engine is down"),
			`{"error":{"type":"timeout_error","message":"the engine is down"}}`,
		},
		StreamFailures: []string{
			"event: error\ndata: " + anthropicFailure("overloaded_error", "the engine is down") + "\n\n",
			"event: error\ndata: " + anthropicFailure("api_error", "the engine is down") + "\n\n",
			"data: " + anthropicFailure("an_error_of_the_future", "the engine is down") + "\n\n",
			"event: error\ndata: the engine is down\n\n",
		},
		Garbage: "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":[}\n\n",
		FinishReasons: map[string]string{
			"end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length",
			"model_context_window_exceeded": "length", "refusal": "content_filter", "a_reason_of_the_future": "stop",
		},
		Waits: []Wait{
			{"rate", http.StatusTooManyRequests, []string{"Retry-After", "7"}, anthropicFailure("rate_limit_error", "slow down"), 7 * time.Second},
			{"overload", 529, []string{"Retry-After", "2"}, anthropicFailure("overloaded_error", "Overloaded"), 2 * time.Second},
			{"requests left", http.StatusTooManyRequests, []string{
				"Anthropic-Ratelimit-Requests-Remaining", "3", "Anthropic-Ratelimit-Requests-Reset", "2126-11-30T12:00:00Z",
			}, anthropicFailure("rate_limit_error", "slow down"), 0},
		},
		Check: checkAnthropic,
	}
}

func anthropicFailure(kind, message string) string {
	return anthropicJSON(map[string]any{
		"type": "error", "error": map[string]any{"type": kind, "message": message}, "request_id": "req_1",
	})
}

func anthropicJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// anthropicUsage is the usage as the vendor counts it: three disjoint parts of the input.
func anthropicUsage(a Answer) map[string]any {
	u := a.Usage
	if u == nil {
		return nil
	}
	written := u.GetCacheWrite() + u.GetCacheWrite_1H()
	return map[string]any{
		"input_tokens": u.GetInput() - u.GetCacheRead() - written, "output_tokens": u.GetOutput(),
		"cache_read_input_tokens": u.GetCacheRead(), "cache_creation_input_tokens": written,
		"cache_creation": map[string]any{
			"ephemeral_5m_input_tokens": u.GetCacheWrite(), "ephemeral_1h_input_tokens": u.GetCacheWrite_1H(),
		},
		"output_tokens_details": map[string]any{"thinking_tokens": u.GetReasoning()},
	}
}

var anthropicReasons = map[string]string{
	"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal",
}

// anthropicEnd is why an answer ended, as members of the message or of its last delta.
func anthropicEnd(a Answer) map[string]any {
	reason := a.RawFinishReason
	if reason == "" {
		reason = anthropicReasons[a.FinishReason]
	}
	end := map[string]any{"stop_reason": reason, "stop_sequence": nil, "stop_details": nil}
	if a.Refusal != "" {
		end["stop_details"] = map[string]any{"type": "refusal", "category": "cyber", "explanation": a.Refusal}
	}
	return end
}

func anthropicMessage(a Answer, content []any, usage map[string]any) map[string]any {
	m := map[string]any{"id": a.ID, "type": "message", "role": "assistant", "model": a.Model, "content": content}
	if usage != nil {
		m["usage"] = usage
	}
	return m
}

func anthropicBody(a Answer) string {
	content := []any{}
	if a.Reasoning != nil || a.Signature != "" {
		content = append(content, map[string]any{"type": "thinking", "thinking": strings.Join(a.Reasoning, ""), "signature": a.Signature})
	}
	if a.Text != nil {
		content = append(content, map[string]any{"type": "text", "text": strings.Join(a.Text, ""), "citations": nil})
	}
	for _, c := range a.Calls {
		content = append(content, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": rawJSON(strings.Join(c.Arguments, ""))})
	}
	m := anthropicMessage(a, content, anthropicUsage(a))
	for name, value := range anthropicEnd(a) {
		m[name] = value
	}
	// The arguments arrive as they were written, which json.Marshal would not leave them.
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		panic(err)
	}
	return out.String()
}

// rawJSON is arguments as they stand in an answer; none are an empty object.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		text = "{}"
	}
	return json.RawMessage(text)
}

// anthropicStream spells each piece of content as one event, together with the events that frame its block, so that
// each has something to show.
func anthropicStream(a Answer) Stream {
	event := func(kind string, members map[string]any) string {
		members["type"] = kind
		return "event: " + kind + "\ndata: " + anthropicJSON(members) + "\n\n"
	}
	var s Stream
	index, frame := 0, ""
	open := func(block map[string]any) {
		frame += event("content_block_start", map[string]any{"index": index, "content_block": block})
	}
	piece := func(delta map[string]any) {
		s.Content = append(s.Content, frame+event("content_block_delta", map[string]any{"index": index, "delta": delta}))
		frame = ""
	}
	done := func() {
		frame += event("content_block_stop", map[string]any{"index": index})
		index++
	}

	start := anthropicUsage(a)
	if start != nil {
		start["output_tokens"] = 1 // it has hardly begun
		delete(start, "output_tokens_details")
	}
	m := anthropicMessage(a, []any{}, start)
	m["stop_reason"], m["stop_sequence"] = nil, nil
	s.Preamble = []string{event("message_start", map[string]any{"message": m}), event("ping", map[string]any{})}

	if a.Reasoning != nil || a.Signature != "" {
		open(map[string]any{"type": "thinking", "thinking": "", "signature": ""})
		for _, text := range a.Reasoning {
			piece(map[string]any{"type": "thinking_delta", "thinking": text})
		}
		if a.Signature != "" {
			frame += event("content_block_delta", map[string]any{"index": index, "delta": map[string]any{"type": "signature_delta", "signature": a.Signature}})
		}
		done()
	}
	if a.Text != nil {
		open(map[string]any{"type": "text", "text": ""})
		for _, text := range a.Text {
			piece(map[string]any{"type": "text_delta", "text": text})
		}
		done()
	}
	for _, c := range a.Calls {
		open(map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": map[string]any{}})
		piece(map[string]any{"type": "input_json_delta", "partial_json": ""})
		for _, text := range c.Arguments {
			piece(map[string]any{"type": "input_json_delta", "partial_json": text})
		}
		done()
	}
	end := map[string]any{"delta": anthropicEnd(a)}
	if usage := anthropicUsage(a); usage != nil {
		delete(usage, "cache_creation") // it came at the start
		end["usage"] = usage
	}
	s.Finish = []string{frame + event("message_delta", end)}
	s.End = []string{event("message_stop", map[string]any{})}
	return s
}

var anthropicFailures = []Failure{
	{"invalid parameter", http.StatusBadRequest, anthropicFailure("invalid_request_error", "temperature: range: 0..1"), vendors.Invalid, "temperature"},
	{"invalid message", http.StatusBadRequest, anthropicFailure("invalid_request_error", "messages.0.content.1.text: must not be blank"), vendors.Invalid, "messages.0.content.1.text"},
	{"prompt too long", http.StatusBadRequest, anthropicFailure("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), vendors.Overflow, ""},
	{"prompt and ceiling too long", http.StatusBadRequest, anthropicFailure("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000"), vendors.Overflow, ""},
	{"spend limit of a workspace", http.StatusBadRequest, anthropicFailure("invalid_request_error", "You have reached your workspace spend limit."), vendors.Denied, ""},
	{"no credit", http.StatusBadRequest, anthropicFailure("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), vendors.Denied, ""},
	{"key refused", http.StatusUnauthorized, anthropicFailure("authentication_error", "invalid x-api-key"), vendors.Denied, ""},
	{"billing", http.StatusPaymentRequired, anthropicFailure("billing_error", "pay"), vendors.Denied, ""},
	{"not permitted", http.StatusForbidden, anthropicFailure("permission_error", "no"), vendors.Denied, ""},
	{"model unknown", http.StatusNotFound, anthropicFailure("not_found_error", "model: claude-x"), vendors.Denied, ""},
	{"conflict", http.StatusConflict, anthropicFailure("conflict_error", "again"), vendors.Unavailable, ""},
	{"request too large", http.StatusRequestEntityTooLarge, anthropicFailure("request_too_large", "too large"), vendors.Overflow, ""},
	{"rate", http.StatusTooManyRequests, anthropicFailure("rate_limit_error", "slow down"), vendors.RateLimited, ""},
	{"spend limit enforced", http.StatusTooManyRequests, `{"type":"error","error":{"type":"rate_limit_error","message":"spent","details":{"error_code":"enforced_spend_limit_reached"}}}`, vendors.Denied, ""},
	{"failure", http.StatusInternalServerError, anthropicFailure("api_error", "oops"), vendors.Unavailable, ""},
	{"timeout", http.StatusGatewayTimeout, anthropicFailure("timeout_error", "late"), vendors.Unavailable, ""},
	{"overload", 529, anthropicFailure("overloaded_error", "Overloaded"), vendors.Unavailable, ""},
}
