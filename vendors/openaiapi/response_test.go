package openaiapi

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestResponseSurvivesUnchanged(t *testing.T) {
	for _, text := range []string{
		`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[]}`,
		`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning":"why","annotations":[{"b":1,"a":2}]},"logprobs":{"content":[{"logprob":0}]},"finish_reason":"stop","content_filter_results":{}}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":2,"audio_tokens":0,"image_tokens":5},"completion_tokens_details":{"reasoning_tokens":1,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0,"text_tokens":3},"queue_time":0.1},"service_tier":"default","system_fingerprint":"fp","moderation":{"a":[]}}`,
		`{"id":"","object":"","created":0,"model":"","choices":[{"index":1,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}]}`,
		`{"id":"","object":"","created":0,"model":"","choices":[],"error":{"message":"m","type":null,"param":null,"code":"c","more":1}}`,
		`{"id":"","object":"","created":0,"model":"","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`,
	} {
		r, err := DecodeChatResponse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(r.AppendJSON(nil)); got != text {
			t.Errorf("lost something:\n in  %s\n out %s", text, got)
		}
	}
}

func TestResponsesOfCompatibleServers(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		check func(*ChatResponse) bool
	}{
		"arguments as object": {`{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":2}}}]}}]}`, func(r *ChatResponse) bool {
			return r.Choices[0].Message.ToolCalls[0].Function.Arguments == `{"b":1,"a":2}`
		}},
		"nulls": {`{"choices":[{"message":{"content":null,"refusal":null,"tool_calls":null},"finish_reason":null,"logprobs":null}],"usage":null,"error":null}`, func(r *ChatResponse) bool {
			c := r.Choices[0]
			return c.Message.Content.Kind == ContentNull && c.Message.ToolCalls == nil && c.Logprobs == nil && r.Usage == nil && r.Error == nil && len(r.Extra) == 0 && len(c.Extra) == 0 && len(c.Message.Extra) == 0
		}},
		"choices null": {`{"choices":null,"error":"boom"}`, func(r *ChatResponse) bool { return r.Error.Message == "boom" }},
		"wrong types":  {`{"id":7,"created":"now","choices":[7,{"index":"0","message":{"role":7,"content":{"a":1},"tool_calls":"x"},"finish_reason":{}}],"usage":"none"}`, func(r *ChatResponse) bool { return len(r.Choices) == 1 && len(r.Extra) == 3 }},
		"floats":       {`{"created":1.7e9,"usage":{"prompt_tokens":12.0,"completion_tokens":"4"}}`, func(r *ChatResponse) bool { return r.Created == 1_700_000_000 && r.Usage.PromptTokens == 12 }},
		"content list": {`{"choices":[{"message":{"content":["a",{"type":"text","text":"b"},{"type":"thinking","thinking":[]}]}}]}`, func(r *ChatResponse) bool {
			p := r.Choices[0].Message.Content.Parts
			return len(p) == 3 && p[0].Text == "a" && p[1].Text == "b" && p[2].Raw != nil
		}},
		"empty strings": {`{"id":"","choices":[{"message":{"content":"","refusal":"","reasoning_content":""},"finish_reason":""}]}`, func(r *ChatResponse) bool {
			return len(r.Extra) == 0 && len(r.Choices[0].Message.Extra) == 0 && r.Choices[0].FinishReason == ""
		}},
		"error false": {`{"choices":[],"error":false}`, func(r *ChatResponse) bool { return r.Error == nil }},
	} {
		r, err := DecodeChatResponse([]byte(c.text))
		if err != nil || !c.check(r) {
			t.Errorf("%s: %v %+v", name, err, r)
		}
	}
}

func TestChunkMemoryIsReused(t *testing.T) {
	var c ChatChunk
	if err := c.Decode([]byte(`{"id":"a","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{},"x":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Decode([]byte(`{"id":"a","choices":[{"delta":{}}]}`)); err != nil {
		t.Fatal(err)
	}
	want := ChatChunk{ID: "a", Choices: []ChunkChoice{{}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("something of the chunk before stayed: %+v", c)
	}
}

func TestDecodeError(t *testing.T) {
	for text, want := range map[string]*ErrorBody{
		`{"error":{"message":"m","type":"t","param":"p","code":"c"}}`: {Message: "m", Type: "t", Param: "p", Code: "c"},
		`{"error":{"message":"m","code":400,"param":null}}`:           {Message: "m", Code: "400"},
		`{"error":"text"}`: {Message: "text"},
		`{"object":"error","message":"m","type":"rate_limited","param":null,"code":"1300","object2":1}`: {Message: "m", Type: "rate_limited", Code: "1300"},
		`{"object":"error","message":{"detail":[{"type":"extra_forbidden"}]}}`:                          {Message: `{"detail":[{"type":"extra_forbidden"}]}`},
		`{"detail":"Unauthorized"}`:                                 {Message: "Unauthorized"},
		`{"detail":{"error_type":"api_usage_error","message":"x"}}`: {Message: `{"error_type":"api_usage_error","message":"x"}`},
		`{"statusCode":429,"message":"m"}`:                          {Message: "m"},
		`[{"error":{"code":400,"message":"m"}}]`:                    {Message: "m", Code: "400"},
		`{"error":null}`:                                            nil,
		`{"choices":[]}`:                                            nil,
		`{"error":`:                                                 nil,
		`<html>`:                                                    nil,
		``:                                                          nil,
		`[]`:                                                        nil,
		`7`:                                                         nil,
	} {
		got := DecodeError([]byte(text))
		if got != nil {
			got.Extra = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestErrorBodyHasFourMembers(t *testing.T) {
	e := ErrorBody{Message: "no", Type: "invalid_request_error"}
	if got := string(e.AppendJSON(nil)); got != `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}` {
		t.Error(got)
	}
}

func TestChunkEvent(t *testing.T) {
	zero := int64(0)
	for _, c := range []struct {
		chunk ChatChunk
		want  string
	}{
		{ChatChunk{ID: "i", Object: "chat.completion.chunk", Created: 5, Model: "m", Choices: []ChunkChoice{{Delta: Delta{Role: "assistant", Content: TextContent("")}}}},
			`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`},
		{ChatChunk{ID: "i", Choices: []ChunkChoice{{FinishReason: "stop"}}},
			`{"id":"i","object":"","created":0,"model":"","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`},
		{ChatChunk{ID: "i", Choices: []ChunkChoice{{Delta: Delta{ToolCalls: []ToolCallDelta{{Index: &zero, ID: "c", Type: "function", Function: &FunctionCall{Name: "f"}}}}}}},
			`{"id":"i","object":"","created":0,"model":"","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}`},
		{ChatChunk{ID: "i", Usage: &Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 3}},
			`{"id":"i","object":"","created":0,"model":"","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`},
	} {
		if got := string(c.chunk.AppendEvent(nil)); got != "data: "+c.want+"\n\n" {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestModelList(t *testing.T) {
	l, err := DecodeModelList([]byte(`{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"x","max_model_len":4096}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(l.AppendJSON(nil)); got != `{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"x","max_model_len":4096}]}` {
		t.Error(got)
	}
}

// TestAnAnswerOfManyValues: a few megabytes of nothing but values would take gigabytes.
func TestAnAnswerOfManyValues(t *testing.T) {
	many := func(before, value, after string, n int) []byte {
		return []byte(before + strings.TrimSuffix(strings.Repeat(value, n), ",") + after)
	}
	for name, shape := range map[string][3]string{
		"choices":         {`{"choices":[`, `{},`, `]}`},
		"calls":           {`{"choices":[{"message":{"tool_calls":[`, `{},`, `]}}]}`},
		"parts":           {`{"choices":[{"message":{"content":[`, `{"type":"text"},`, `]}}]}`},
		"texts":           {`{"choices":[{"message":{"content":[`, `"",`, `]}}]}`},
		"further members": {`{"choices":[{"message":{`, `"a":1,`, `}}]}`},
		"wrong members":   {`{"choices":[{"message":{`, `"role":1,`, `}}]}`},
	} {
		for _, delta := range []bool{false, true} {
			text := many(shape[0], shape[1], shape[2], maxBuilt+1)
			if delta {
				text = bytes.Replace(text, []byte(`"message"`), []byte(`"delta"`), 1)
			}
			err := decodeAnswer(text, delta)
			if wrong, is := errors.AsType[*TypeError](err); !is || !strings.Contains(wrong.Error(), "no more than") {
				t.Errorf("%s, of a stream: %v: %v", name, delta, err)
			}
		}
	}
	// What is kept as it stands may be as large as it likes.
	if err := decodeAnswer(many(`{"choices":[{"message":{},"logprobs":[`, `{},`, `]}],"x":[]}`, maxBuilt+1), false); err != nil {
		t.Error(err)
	}
	if _, err := DecodeChatRequest(many(`{"model":"m","messages":[`, `{"role":"user","content":""},`, `]}`, maxBuilt+1)); err != nil {
		t.Errorf("a request: %v", err)
	}
}

func decodeAnswer(text []byte, delta bool) error {
	if delta {
		return new(ChatChunk).Decode(text)
	}
	_, err := DecodeChatResponse(text)
	return err
}
