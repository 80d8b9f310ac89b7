package clients

import (
	"context"
	"errors"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

func official(w *world, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(w.HTTP+"/v1/"), option.WithAPIKey(key))
}

func ask(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

func withTools(p openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	for _, name := range []string{"weather", "time"} {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: name, Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}))
	}
	return p
}

func checkCalls(t *testing.T, calls []openai.ChatCompletionMessageToolCallUnion) {
	t.Helper()
	if len(calls) != 2 || calls[0].ID != "call_1" || calls[0].Function.Name != "weather" || calls[0].Function.Arguments != `{"city":"Paris"}` ||
		calls[1].ID != "call_2" || calls[1].Function.Name != "time" || calls[1].Function.Arguments != "{}" {
		t.Errorf("tool calls: %+v", calls)
	}
}

func TestOpenAIGo_Unary(t *testing.T) {
	w := start(t)
	client := official(w, w.key)
	r, err := client.Chat.Completions.New(t.Context(), ask("auto", "hi"))
	if err != nil || r.Choices[0].Message.Content != "Hello from upstream." || r.Model != "good" || r.Usage.TotalTokens != 12 || r.Choices[0].FinishReason != "stop" {
		t.Errorf("got %+v, %v", r, err)
	}
	list, err := client.Models.List(t.Context())
	if err != nil || len(list.Data) != 2 {
		t.Errorf("models: %+v, %v", list, err)
	}
	if model, err := client.Models.Get(t.Context(), "good"); err != nil || model.ID != "good" {
		t.Errorf("model: %+v, %v", model, err)
	}
}

func TestOpenAIGo_Stream(t *testing.T) {
	w := start(t)
	client := official(w, w.key)
	for _, usage := range []bool{false, true} {
		params := ask("auto:high", "hi")
		if usage {
			params.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Errorf("the accumulator refuses %s", stream.Current().RawJSON())
			}
		}
		want := int64(0)
		if usage {
			want = 12
		}
		if stream.Err() != nil || all.Choices[0].Message.Content != "Hello from upstream." || all.Choices[0].FinishReason != "stop" || all.Usage.TotalTokens != want {
			t.Errorf("usage %v: %+v, %v", usage, all.ChatCompletion, stream.Err())
		}
	}
}

func TestOpenAIGo_Tools(t *testing.T) {
	w := start(t)
	client := official(w, w.key)
	params := withTools(ask("auto", "weather and time?"))
	r, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	checkCalls(t, r.Choices[0].Message.ToolCalls)

	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	if stream.Err() != nil || all.Choices[0].FinishReason != "tool_calls" {
		t.Fatalf("streamed: %+v, %v", all.ChatCompletion, stream.Err())
	}
	checkCalls(t, all.Choices[0].Message.ToolCalls)

	params.Messages = append(params.Messages, r.Choices[0].Message.ToParam(), openai.ToolMessage("sunny", "call_1"), openai.ToolMessage("noon", "call_2"))
	r, err = client.Chat.Completions.New(t.Context(), params)
	if err != nil || r.Choices[0].Message.Content != "It is sunny, said the tool." {
		t.Errorf("the second turn: %+v, %v", r, err)
	}
}

func TestOpenAIGo_StructuredOutput(t *testing.T) {
	w := start(t)
	client := official(w, w.key)
	params := ask("good", "capital of France?")
	params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "city", Strict: openai.Bool(true), Schema: map[string]any{"type": "object"}}}
	r, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil || r.Choices[0].Message.Content != `{"city":"Paris","population":2100000}` {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestOpenAIGo_Errors(t *testing.T) {
	w := start(t)
	for _, test := range []struct {
		name, key, model string
		code             int
		errorCode        string
	}{
		{"wrong key", "ktms_wrong", "auto", 401, "invalid_api_key"},
		{"wrong scope", w.reader, "auto", 403, "insufficient_scope"},
		{"unknown model", w.key, "nope", 404, "model_not_found"},
		{"bad request", w.key, "auto:nonsense", 400, "bad_request"},
		{"vendor down", w.key, "broken", 503, "vendors_unavailable"},
	} {
		client := openai.NewClient(option.WithBaseURL(w.HTTP+"/v1/"), option.WithAPIKey(test.key), option.WithMaxRetries(0))
		before := w.vendor.calls.Load()
		_, err := client.Chat.Completions.New(t.Context(), ask(test.model, "hi"))
		var failed *openai.Error
		if !errors.As(err, &failed) || failed.StatusCode != test.code || failed.Code != test.errorCode || failed.Message == "" {
			t.Errorf("%s: got %v, want %d %s", test.name, err, test.code, test.errorCode)
		}
		if calls := w.vendor.calls.Load() - before; test.model == "broken" && calls != 2 {
			t.Errorf("%s: the vendor saw %d calls, want the call and one retry", test.name, calls)
		}
		stream := client.Chat.Completions.NewStreaming(t.Context(), ask(test.model, "hi"))
		for stream.Next() {
			t.Errorf("%s: a chunk of a refused stream: %s", test.name, stream.Current().RawJSON())
		}
		if !errors.As(stream.Err(), &failed) || failed.StatusCode != test.code {
			t.Errorf("%s, streamed: got %v, want %d", test.name, stream.Err(), test.code)
		}
	}
}

func TestOpenAIGo_Abort(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	client := official(w, w.key)
	stream := client.Chat.Completions.NewStreaming(ctx, ask("auto", "for ever"))
	for range 3 {
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
	}
	cancel()
	for stream.Next() { // what was buffered
	}
	if err := stream.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
