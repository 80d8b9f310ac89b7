package clients

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/ai-process/ktms/store/storetest"
)

func community(base, key string) *openai.Client {
	config := openai.DefaultConfig(key)
	config.BaseURL = base + "/v1"
	return openai.NewClientWithConfig(config)
}

func question(model, text string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: model, Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: text}}}
}

// read puts a stream together, since this client leaves that to its callers.
func read(client *openai.Client, ctx context.Context, request openai.ChatCompletionRequest) (openai.ChatCompletionChoice, *openai.Usage, error) {
	var all openai.ChatCompletionChoice
	var usage *openai.Usage
	stream, err := client.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return all, nil, err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, usage, nil
		}
		if err != nil {
			return all, usage, err
		}
		if chunk.Usage != nil {
			usage = chunk.Usage
		}
		for _, choice := range chunk.Choices {
			all.Message.Role += choice.Delta.Role
			all.Message.Content += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				if call.Index == nil || *call.Index < 0 || *call.Index > len(all.Message.ToolCalls) {
					return all, usage, errors.New("a piece of a tool call without an index, or with a gap before it")
				}
				if *call.Index == len(all.Message.ToolCalls) {
					all.Message.ToolCalls = append(all.Message.ToolCalls, openai.ToolCall{ID: call.ID, Type: call.Type, Function: call.Function})
					continue
				}
				all.Message.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
			}
			if choice.FinishReason != "" {
				all.FinishReason = choice.FinishReason
			}
		}
	}
}

func TestGoOpenAI_UnaryAndModels(t *testing.T) {
	w := start(t)
	client := community(w.HTTP, w.key)
	r, err := client.CreateChatCompletion(t.Context(), question("auto", "hi"))
	if err != nil || r.Choices[0].Message.Content != hello || r.Choices[0].FinishReason != openai.FinishReasonStop || r.Model != good || r.Usage.TotalTokens != total {
		t.Errorf("got %+v, %v", r, err)
	}
	if r.Header().Get("X-KTMS-Rule") != "all" {
		t.Errorf("header: %v", r.Header())
	}
	list, err := client.ListModels(t.Context())
	if err != nil || len(list.Models) != 6 {
		t.Errorf("models: %+v, %v", list, err)
	}
	if model, err := client.GetModel(t.Context(), good); err != nil || model.ID != good {
		t.Errorf("model: %+v, %v", model, err)
	}
}

func TestGoOpenAI_Stream(t *testing.T) {
	w := start(t)
	client := community(w.HTTP, w.key)
	for _, asked := range []bool{false, true} {
		request := question("auto", "hi")
		if asked {
			request.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
		}
		r, usage, err := read(client, t.Context(), request)
		if err != nil || r.Message.Content != hello || r.Message.Role != "assistant" || r.FinishReason != openai.FinishReasonStop {
			t.Errorf("usage asked for: %v: got %+v, %v", asked, r, err)
		}
		if (usage != nil) != asked || (asked && usage.TotalTokens != total) {
			t.Errorf("usage asked for: %v: got %+v", asked, usage)
		}
	}
}

func TestGoOpenAI_Tools(t *testing.T) {
	w := start(t)
	client := community(w.HTTP, w.key)
	request := question("auto", "weather and time?")
	for _, name := range []string{"weather", "time"} {
		request.Tools = append(request.Tools, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: name, Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}})
	}
	whole, err := client.CreateChatCompletion(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	pieces, _, err := read(client, t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	want := []openai.ToolCall{
		{ID: "call_1", Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Name: "weather", Arguments: `{"city":"Paris"}`}},
		{ID: "call_2", Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Name: "time", Arguments: "{}"}},
	}
	for _, choice := range []openai.ChatCompletionChoice{whole.Choices[0], pieces} {
		if !slices.Equal(choice.Message.ToolCalls, want) || choice.FinishReason != openai.FinishReasonToolCalls {
			t.Errorf("got %+v", choice)
		}
	}
	request.Messages = append(request.Messages, pieces.Message,
		openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, ToolCallID: "call_1", Content: "sunny"},
		openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, ToolCallID: "call_2", Content: "noon"})
	second, err := client.CreateChatCompletion(t.Context(), request)
	if err != nil || second.Choices[0].Message.Content != toolsSaid {
		t.Errorf("the second turn: %+v, %v", second, err)
	}
}

func TestGoOpenAI_StructuredOutput(t *testing.T) {
	w := start(t)
	request := question(good, "capital of France?")
	request.ResponseFormat = &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONSchema,
		JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "city", Strict: true,
			Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)}}
	r, err := community(w.HTTP, w.key).CreateChatCompletion(t.Context(), request)
	if err != nil || r.Choices[0].Message.Content != city {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestGoOpenAI_Errors(t *testing.T) {
	w := start(t)
	for _, want := range w.refusals() {
		t.Run(want.name, func(t *testing.T) {
			client, before := community(w.HTTP, want.key), w.vendor.seen(down)
			_, unary := client.CreateChatCompletion(t.Context(), question(want.model, "hi"))
			_, _, streamed := read(client, t.Context(), question(want.model, "hi"))
			for _, err := range []error{unary, streamed} {
				var failed *openai.APIError
				if !errors.As(err, &failed) || failed.HTTPStatusCode != want.status || failed.Code != want.code || failed.Message == "" {
					t.Errorf("got %v, want %d %s", err, want.status, want.code)
				}
			}
			if calls := w.vendor.seen(down) - before; want.model == down && calls != 2*attemptsPerCall {
				t.Errorf("the vendor saw %d calls, want %d", calls, 2*attemptsPerCall)
			}
		})
	}
	r, _, err := read(community(w.HTTP, w.key), t.Context(), question(dies, "hi"))
	var failed *openai.APIError
	if !errors.As(err, &failed) || failed.Code != "vendors_unavailable" || r.Message.Content != "Hel" {
		t.Errorf("a broken stream: got %+v, %v", r, err)
	}
}

func TestGoOpenAI_Abort(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := community(w.HTTP, w.key).CreateChatCompletionStream(ctx, question("auto", forEver))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for range 3 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range maxTokens { // what was buffered
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	storetest.Eventually(t, 5*time.Second, "the vendor's stream ends", func() bool { return !w.vendor.streaming() })
}

func TestGoOpenAI_Embeddings(t *testing.T) {
	w := start(t)
	client := community(w.HTTP, w.key)
	for _, format := range []openai.EmbeddingEncodingFormat{"", openai.EmbeddingEncodingFormatFloat, openai.EmbeddingEncodingFormatBase64} {
		r, err := client.CreateEmbeddings(t.Context(), openai.EmbeddingRequestStrings{Input: []string{"ab", "abcd"}, Model: vectors, EncodingFormat: format})
		if err != nil || len(r.Data) != 2 || !slices.Equal(r.Data[0].Embedding, []float32{2, 0, 0.5}) || !slices.Equal(r.Data[1].Embedding, []float32{4, 1, 0.5}) || r.Usage.PromptTokens != 6 {
			t.Errorf("%q: %+v, %v", format, r, err)
		}
	}
}
