package clients

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// official is openai-go with its own retries switched off, which would hide how often the server itself tries.
func official(base, key string, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(base + "/v1/"), option.WithAPIKey(key), option.WithMaxRetries(0)}, options...)...)
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

// accumulate reads a stream to its end with the SDK's own accumulator, which insists on one id and dense indexes.
func accumulate(t *testing.T, s *ssestream.Stream[openai.ChatCompletionChunk]) openai.ChatCompletion {
	t.Helper()
	defer s.Close()
	var all openai.ChatCompletionAccumulator
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			t.Errorf("the accumulator refuses %s", s.Current().RawJSON())
		}
	}
	if s.Err() != nil || len(all.Choices) != 1 {
		t.Fatalf("a stream of %d choices, %v", len(all.Choices), s.Err())
	}
	return all.ChatCompletion
}

func checkCalls(t *testing.T, choice openai.ChatCompletionChoice) {
	t.Helper()
	var got []string
	for _, c := range choice.Message.ToolCalls {
		got = append(got, c.ID+" "+c.Type+" "+c.Function.Name+" "+c.Function.Arguments)
	}
	if want := []string{`call_1 function weather {"city":"Paris"}`, "call_2 function time {}"}; !slices.Equal(got, want) || choice.FinishReason != "tool_calls" {
		t.Errorf("got %v and %q, want %v", got, choice.FinishReason, want)
	}
}

func TestOpenAIGo_Unary(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	var raw *http.Response
	r, err := client.Chat.Completions.New(t.Context(), ask("auto", "hi"), option.WithResponseInto(&raw))
	if err != nil {
		t.Fatal(err)
	}
	if r.Choices[0].Message.Content != hello || r.Choices[0].FinishReason != "stop" || r.Model != good || r.Usage.TotalTokens != total ||
		!strings.HasPrefix(r.ID, "chatcmpl-") || raw.Header.Get("X-KTMS-Rule") != "all" {
		t.Errorf("got %s with %v", r.RawJSON(), raw.Header)
	}
}

func TestOpenAIGo_Models(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	pages := client.Models.ListAutoPaging(t.Context())
	var ids []string
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	if want := []string{dear, dies, down, good, unreachable, vectors}; pages.Err() != nil || !slices.Equal(ids, want) {
		t.Errorf("models: %v, %v, want %v", ids, pages.Err(), want)
	}
	if model, err := client.Models.Get(t.Context(), good); err != nil || model.ID != good || model.OwnedBy != "openai" {
		t.Errorf("model: %+v, %v", model, err)
	}
	var failed *openai.Error
	if _, err := client.Models.Get(t.Context(), "nope"); !errors.As(err, &failed) || failed.StatusCode != http.StatusNotFound || failed.Param != "model" {
		t.Errorf("an unknown model: %v", err)
	}
}

func TestOpenAIGo_Stream(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	for _, asked := range []bool{false, true} {
		params, tokens := ask("auto:high", "hi"), int64(0)
		if asked {
			params.StreamOptions.IncludeUsage = openai.Bool(true)
			tokens = total
		}
		r := accumulate(t, client.Chat.Completions.NewStreaming(t.Context(), params))
		if r.Choices[0].Message.Content != hello || r.Choices[0].FinishReason != "stop" || r.Usage.TotalTokens != tokens || r.Model != good {
			t.Errorf("usage asked for: %v: got %+v", asked, r)
		}
	}
}

func TestOpenAIGo_Tools(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	params := withTools(ask("auto", "weather and time?"))
	r, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	checkCalls(t, r.Choices[0])
	streamed := accumulate(t, client.Chat.Completions.NewStreaming(t.Context(), params))
	checkCalls(t, streamed.Choices[0])

	params.Messages = append(params.Messages, streamed.Choices[0].Message.ToParam(),
		openai.ToolMessage("sunny", "call_1"), openai.ToolMessage("noon", "call_2"))
	r, err = client.Chat.Completions.New(t.Context(), params)
	if err != nil || r.Choices[0].Message.Content != toolsSaid {
		t.Errorf("the second turn: %+v, %v", r, err)
	}
	if r := accumulate(t, client.Chat.Completions.NewStreaming(t.Context(), params)); r.Choices[0].Message.Content != toolsSaid {
		t.Errorf("the second turn, streamed: %+v", r)
	}
}

func TestOpenAIGo_StructuredOutput(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	params := ask(good, "capital of France?")
	params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "city", Strict: openai.Bool(true), Schema: map[string]any{
			"type": "object", "required": []string{"city"}, "additionalProperties": false,
			"properties": map[string]any{"city": map[string]any{"type": "string"}}}}}
	r, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil || r.Choices[0].Message.Content != city {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestOpenAIGo_Errors(t *testing.T) {
	w := start(t)
	for _, want := range w.refusals() {
		t.Run(want.name, func(t *testing.T) {
			client, before := official(w.HTTP, want.key), w.vendor.seen(down)
			_, err := client.Chat.Completions.New(t.Context(), ask(want.model, "hi"))
			stream := client.Chat.Completions.NewStreaming(t.Context(), ask(want.model, "hi"))
			for stream.Next() {
				t.Errorf("a chunk of a refused stream: %s", stream.Current().RawJSON())
			}
			for _, err := range []error{err, stream.Err()} {
				var failed *openai.Error
				if !errors.As(err, &failed) || failed.StatusCode != want.status || failed.Code != want.code || failed.Message == "" || failed.Type == "" {
					t.Errorf("got %v, want %d %s", err, want.status, want.code)
				}
			}
			if calls := w.vendor.seen(down) - before; want.model == down && calls != 2*attemptsPerCall {
				t.Errorf("the vendor saw %d calls, want %d", calls, 2*attemptsPerCall)
			}
		})
	}
}

func TestOpenAIGo_RetriesAreItsOwnAndTheServersOne(t *testing.T) {
	w := start(t)
	var sent atomic.Int64
	client := official(w.HTTP, w.key, option.WithMaxRetries(1), option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		sent.Add(1)
		return next(r)
	}))
	_, err := client.Chat.Completions.New(t.Context(), ask(down, "hi"))
	if err == nil || sent.Load() != 2 || w.vendor.seen(down) != 2*attemptsPerCall {
		t.Errorf("%d requests, %d calls of the vendor (%v); want 2 and %d", sent.Load(), w.vendor.seen(down), err, 2*attemptsPerCall)
	}
}

// A key without money is told so once: its client does not try again.
func TestOpenAIGo_NoMoneyIsNotTriedAgain(t *testing.T) {
	w := start(t)
	var sent atomic.Int64
	client := official(w.HTTP, w.broke, option.WithMaxRetries(5), option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		sent.Add(1)
		return next(r)
	}))
	_, err := client.Chat.Completions.New(t.Context(), ask(dear, "hi"))
	var failed *openai.Error
	if !errors.As(err, &failed) || failed.Type != "insufficient_quota" || !strings.Contains(failed.Message, "throttled:spend_key_monthly") || sent.Load() != 1 {
		t.Errorf("%d requests, %v", sent.Load(), err)
	}
}

func TestOpenAIGo_ABrokenStreamIsAnError(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask(dies, "hi"))
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Delta.Content
	}
	if stream.Err() == nil || !strings.Contains(stream.Err().Error(), "vendors_unavailable") || text != "Hel" {
		t.Errorf("got %q and %v", text, stream.Err())
	}
}

func TestOpenAIGo_Abort(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := official(w.HTTP, w.key)
	stream := client.Chat.Completions.NewStreaming(ctx, ask("auto", forEver))
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
	storetest.Eventually(t, 5*time.Second, "the vendor's stream ends", func() bool { return !w.vendor.streaming() })
}

func TestOpenAIGo_Embeddings(t *testing.T) {
	w := start(t)
	client := official(w.HTTP, w.key)
	r, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: vectors, Dimensions: openai.Int(3),
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"ab", "abcd"}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Data) != 2 || !slices.Equal(r.Data[0].Embedding, []float64{2, 0, 0.5}) || !slices.Equal(r.Data[1].Embedding, []float64{4, 1, 0.5}) || r.Usage.TotalTokens != 6 || r.Model != vectors {
		t.Errorf("%s", r.RawJSON())
	}
}

// The official accumulator, the strictest reader of streams that there is, over every dialect's answers.
func TestOpenAIGo_EveryDialect(t *testing.T) {
	for vendor, script := range map[string]vendortest.Script{
		vendors.OpenAI: vendortest.OpenAI(), vendors.Mistral: vendortest.OpenAI(), vendors.Anthropic: vendortest.Anthropic(),
		vendors.Google: vendortest.Gemini(), vendors.Bedrock: vendortest.Bedrock("eu-west-3"),
	} {
		t.Run(vendor, func(t *testing.T) {
			up := vendortest.NewUpstream(t)
			s := servertest.Start(t, servertest.Defaults(t))
			key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{{Id: "m", Vendor: vendor, Endpoint: up.URL, Enabled: true}}})
			client := official(s.HTTP, key)
			called := vendortest.Answer{ID: "a", Model: "m", Text: []string{"Let me ", "look."}, FinishReason: "tool_calls", Usage: &ktmsv1.TokensUsage{Input: 7, Output: 5}}
			for i, name := range []string{"weather", "time"} {
				arguments := [][]string{{`{"city":`, `"Paris"}`}, {`{}`}}[i]
				called.Calls = append(called.Calls, vendortest.ToolCall{ID: []string{"callnum01", "callnum02"}[i], Name: name, Arguments: arguments})
			}
			up.Reply(vendortest.Events(script.StreamType, script.Stream(called).All()...), vendortest.Respond(200, script.Body(called), "Content-Type", script.UnaryType))
			params := withTools(ask("m", "hi"))
			params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
			streamed := accumulate(t, client.Chat.Completions.NewStreaming(t.Context(), params))
			params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
			whole, err := client.Chat.Completions.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			for kind, r := range map[string]openai.ChatCompletion{"streamed": streamed, "whole": *whole} {
				m := r.Choices[0].Message
				if m.Content != "Let me look." || len(m.ToolCalls) != 2 || m.ToolCalls[0].Function.Arguments != `{"city":"Paris"}` || m.ToolCalls[1].Function.Name != "time" ||
					m.ToolCalls[1].Function.Arguments != "{}" || r.Choices[0].FinishReason != "tool_calls" || r.Usage.TotalTokens != total {
					t.Errorf("%s: %+v %+v", kind, m, r.Usage)
				}
			}
		})
	}
}
