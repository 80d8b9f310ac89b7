package vendortest

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// OpenAI spells the OpenAI chat dialect.
func OpenAI() Script {
	return Script{
		UnaryType: "application/json", StreamType: "text/event-stream", SSE: true, Reasoning: true, Refusals: true, CacheWrites: true,
		Body: openaiBody, Stream: openaiStream,
		Failure: func(message string) string {
			return string((&openaiapi.ErrorBody{Message: message, Type: "some_error"}).AppendJSON(nil))
		},
		Failures: openaiFailures,
		HiddenFailures: []string{
			`{"error":{"message":"the engine is down","type":"server_error","param":null,"code":null}}`,
			`{"error":"the engine is down"}`,
			`{"object":"error","message":"the engine is down","type":"internal","code":500}`,
			`{"choices":[]}`,
		},
		StreamFailures: []string{
			"data: {\"error\":{\"message\":\"the engine is down\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n",
			"data: {\"error\":\"the engine is down\"}\n\n",
			"data: {\"error\":{\"message\":\"the engine is down\",\"code\":503}}\n\n",
			"event: error\ndata: {\"message\":\"the engine is down\"}\n\n",
			"event: error\ndata: the engine is down\n\n",
		},
		Garbage:       "data: {\"id\":\"x\",\"choices\":[{]}\n\n",
		FinishReasons: openaiReasons, Waits: openaiWaits, Check: openaiCheck, Embeddings: openaiEmbeddings,
	}
}

var openaiReasons = map[string]string{
	"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter", "function_call": "tool_calls",
	"model_length": "length", "error": MeansBroken, "insufficient_system_resource": MeansBroken, "eos_token": "stop", "safety": "content_filter",
}

const rateLimited = `{"error":{"message":"slow down","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`

var openaiWaits = []Wait{
	{"seconds", http.StatusTooManyRequests, []string{"Retry-After", "7"}, rateLimited, 7 * time.Second},
	{"milliseconds win", http.StatusTooManyRequests, []string{"Retry-After", "7", "Retry-After-Ms", "1500"}, rateLimited, 1500 * time.Millisecond},
	{"a date, by the sender's clock", http.StatusServiceUnavailable, []string{"Date", "Mon, 30 Nov 2026 12:00:00 GMT", "Retry-After", "Mon, 30 Nov 2026 12:01:30 GMT"}, `{}`, 90 * time.Second},
	{"the limit that is used up", http.StatusTooManyRequests, []string{"X-Ratelimit-Remaining-Requests", "3", "X-Ratelimit-Reset-Requests", "9s", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "6m0s"}, rateLimited, 6 * time.Minute},
	{"the limit that is used up, Mistral", http.StatusTooManyRequests, []string{"X-Ratelimit-Remaining-Tokens-Minute", "0", "X-Ratelimit-Reset-Tokens-Minute", "12"}, rateLimited, 12 * time.Second},
	{"none", http.StatusTooManyRequests, nil, rateLimited, 0},
	{"nonsense", http.StatusTooManyRequests, []string{"Retry-After", "-1"}, rateLimited, 0},
}

// openaiEmbeddings gives the vectors in reverse, since their index counts, and in base64 where that was asked for.
func openaiEmbeddings(c *Call, vectors [][]float32, inputTokens int64) string {
	var asked struct {
		Format string `json:"encoding_format"`
	}
	_ = json.Unmarshal(c.Body, &asked) // what is no JSON asks for nothing
	var data []map[string]any
	for i, v := range vectors {
		var vector any = v
		if asked.Format == "base64" {
			packed, err := binary.Append(nil, binary.LittleEndian, v)
			if err != nil {
				panic(err)
			}
			vector = packed
		}
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": vector})
	}
	slices.Reverse(data)
	text, err := json.Marshal(map[string]any{"object": "list", "model": "m", "data": data,
		"usage": map[string]any{"prompt_tokens": inputTokens, "total_tokens": inputTokens}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func openaiUsage(a Answer) *openaiapi.Usage {
	u := a.Usage
	if u == nil {
		return nil
	}
	return &openaiapi.Usage{
		PromptTokens: u.GetInput(), CompletionTokens: u.GetOutput(), TotalTokens: u.GetInput() + u.GetOutput(),
		PromptTokensDetails: &openaiapi.PromptTokensDetails{
			CachedTokens: u.GetCacheRead(), CacheWriteTokens: u.GetCacheWrite(), AudioTokens: u.GetInputAudio()},
		CompletionTokensDetails: &openaiapi.CompletionTokensDetails{
			ReasoningTokens: u.GetReasoning(), AudioTokens: u.GetOutputAudio(),
			AcceptedPredictionTokens: u.GetAcceptedPrediction(), RejectedPredictionTokens: u.GetRejectedPrediction()},
	}
}

func openaiBody(a Answer) string {
	m := openaiapi.Message{Role: "assistant", ReasoningContent: strings.Join(a.Reasoning, ""), Refusal: a.Refusal, Content: openaiapi.NullContent()}
	if a.Text != nil {
		m.Content = openaiapi.TextContent(strings.Join(a.Text, ""))
	}
	for _, c := range a.Calls {
		m.ToolCalls = append(m.ToolCalls, openaiapi.ToolCall{ID: c.ID, Type: "function",
			Function: &openaiapi.FunctionCall{Name: c.Name, Arguments: strings.Join(c.Arguments, "")}})
	}
	r := openaiapi.ChatResponse{ID: a.ID, Object: "chat.completion", Created: 1, Model: a.Model,
		Choices: []openaiapi.Choice{{Message: m, FinishReason: a.reason()}}, Usage: openaiUsage(a)}
	return string(r.AppendJSON(nil))
}

func openaiStream(a Answer) Stream {
	event := func(usage *openaiapi.Usage, choices ...openaiapi.ChunkChoice) string {
		c := openaiapi.ChatChunk{ID: a.ID, Object: "chat.completion.chunk", Created: 1, Model: a.Model, Choices: choices, Usage: usage}
		return string(c.AppendEvent(nil))
	}
	delta := func(d openaiapi.Delta) string { return event(nil, openaiapi.ChunkChoice{Delta: d}) }
	s := Stream{
		Preamble: []string{delta(openaiapi.Delta{Role: "assistant", Content: openaiapi.TextContent("")})},
		Finish:   []string{event(nil, openaiapi.ChunkChoice{FinishReason: a.reason()})},
		End:      []string{openaiapi.DoneEvent},
	}
	for _, piece := range a.Reasoning {
		s.Content = append(s.Content, delta(openaiapi.Delta{ReasoningContent: piece}))
	}
	for _, piece := range a.Text {
		s.Content = append(s.Content, delta(openaiapi.Delta{Content: openaiapi.TextContent(piece)}))
	}
	if a.Refusal != "" {
		s.Content = append(s.Content, delta(openaiapi.Delta{Refusal: a.Refusal[:3]}), delta(openaiapi.Delta{Refusal: a.Refusal[3:]}))
	}
	for i, c := range a.Calls {
		index := new(int64(i))
		s.Content = append(s.Content, delta(openaiapi.Delta{ToolCalls: []openaiapi.ToolCallDelta{
			{Index: index, ID: c.ID, Type: "function", Function: &openaiapi.FunctionCall{Name: c.Name}}}}))
		for _, piece := range c.Arguments {
			s.Content = append(s.Content, delta(openaiapi.Delta{ToolCalls: []openaiapi.ToolCallDelta{
				{Index: index, Function: &openaiapi.FunctionCall{Arguments: piece}}}}))
		}
	}
	if a.Usage != nil {
		s.Usage = []string{event(openaiUsage(a))}
	}
	return s
}

var openaiFailures = []Failure{
	{"invalid parameter", http.StatusBadRequest, `{"error":{"message":"bad value","type":"invalid_request_error","param":"temperature","code":"invalid_value"}}`, vendors.Invalid, "temperature"},
	{"prompt too long", http.StatusBadRequest, `{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, vendors.Overflow, "messages"},
	{"prompt too long, vLLM", http.StatusBadRequest, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}`, vendors.Overflow, ""},
	{"prompt too long, llama.cpp", http.StatusBadRequest, `{"error":{"code":400,"message":"too big","type":"exceed_context_size_error"}}`, vendors.Overflow, ""},
	{"prompt blocked, Azure", http.StatusBadRequest, `{"error":{"message":"The response was filtered","type":null,"param":"prompt","code":"content_filter","status":400}}`, vendors.Blocked, "prompt"},
	{"prompt blocked", http.StatusBadRequest, `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"content_policy_violation"}}`, vendors.Blocked, ""},
	{"key refused", http.StatusUnauthorized, `{"error":{"message":"bad key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, vendors.Denied, ""},
	{"model unknown", http.StatusNotFound, `{"error":{"message":"no such model","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, vendors.Denied, ""},
	{"model unknown, as 400", http.StatusBadRequest, `{"error":{"message":"no such model","type":"invalid_request_error","param":"model","code":"model_not_found"}}`, vendors.Denied, "model"},
	{"account empty", http.StatusTooManyRequests, `{"error":{"message":"pay","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, vendors.Denied, ""},
	{"credit used up", http.StatusTooManyRequests, `{"error":{"message":"pay","type":"insufficient_quota","param":null,"code":"credit_balance_exhausted"}}`, vendors.Denied, ""},
	{"balance used up, DeepSeek", http.StatusPaymentRequired, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, vendors.Denied, ""},
	{"rate of tokens", http.StatusTooManyRequests, `{"error":{"message":"slow","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, vendors.RateLimited, ""},
	{"rate, Mistral", http.StatusTooManyRequests, `{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300","raw_status_code":429}`, vendors.RateLimited, ""},
	{"rate, a proxy before Azure", http.StatusTooManyRequests, `{"statusCode":429,"message":"Rate limit is exceeded"}`, vendors.RateLimited, ""},
	{"unknown field, Mistral", http.StatusUnprocessableEntity, `{"object":"error","message":{"detail":[{"type":"extra_forbidden"}]},"type":"invalid_request_error","code":null}`, vendors.Invalid, ""},
	{"tool call failed, Groq", http.StatusBadRequest, `{"error":{"message":"Failed to call a function","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"x"}}`, vendors.Unavailable, ""},
	{"no capacity, Groq", 498, `{"error":{"message":"capacity","type":"capacity_exceeded"}}`, vendors.Unavailable, ""},
	{"queue full, Ollama", http.StatusServiceUnavailable, `{"error":"server busy, please try again"}`, vendors.Unavailable, ""},
	{"loading, llama.cpp", http.StatusServiceUnavailable, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, vendors.Unavailable, ""},
}
