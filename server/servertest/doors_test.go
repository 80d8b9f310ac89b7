package servertest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"go.yaml.in/yaml/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protojson"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
)

// doorCase is one line of the table in testdata/cases.
type doorCase struct {
	Name   string
	RPC    string
	HTTP   string
	Status int
	Unary  string
	Stream []string
	Want   outcome
}

// outcome is what a caller sees of a call, whatever the door.
type outcome struct {
	Model, Rule, Text, Refusal, Reasoning, Finish string
	Calls                                         []string
	Input, Output, Cached                         int64
	Reason                                        string
	HTTP                                          int
}

// answering is a vendor that answers with the case at hand.
type answering struct {
	mu   sync.Mutex
	line doorCase
}

func (a *answering) set(c doorCase) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.line = c
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	c := a.line
	a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var wire struct{ Stream bool }
	if json.Unmarshal(body, &wire) != nil {
		http.Error(w, "not JSON", http.StatusTeapot)
		return
	}
	if c.Status != 0 || !wire.Stream {
		w.Header().Set("Content-Type", "application/json")
		if c.Status != 0 {
			w.WriteHeader(c.Status)
		}
		_, _ = io.WriteString(w, c.Unary)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range c.Stream {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
		_ = http.NewResponseController(w).Flush()
	}
}

func TestEveryDoorGivesTheSameOutcome(t *testing.T) {
	raw, err := os.ReadFile("testdata/cases/text.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []doorCase
	if err := yaml.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	vendor := &answering{}
	upstream := httptest.NewServer(vendor)
	t.Cleanup(upstream.Close)
	s := servertest.Start(t, servertest.Defaults(t))
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{
		servertest.Model("first", upstream.URL), servertest.Model("second", upstream.URL)}})

	rpc := func(options ...connecthttp.Option) ktmsv1connect.GatewayServiceClient {
		return ktmsv1connect.NewGatewayServiceClient(s.Client(t, key, options...))
	}
	doors := map[string]func(*testing.T, doorCase, bool) outcome{
		"grpc":         throughRPC(rpc(connecthttp.WithGRPC())),
		"grpc-web":     throughRPC(rpc(connecthttp.WithGRPCWeb())),
		"connect":      throughRPC(rpc()),
		"connect-json": throughRPC(rpc(connecthttp.WithProtoJSON())),
		"openai":       throughOpenAI(s.HTTP, key),
	}
	for _, c := range cases {
		vendor.set(c)
		for door, call := range doors {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/stream=%v", c.Name, door, stream), func(t *testing.T) {
					want := c.Want
					if door != "openai" {
						want.HTTP = 0
					}
					if got := call(t, c, stream); !reflect.DeepEqual(got, want) {
						t.Errorf("\n got %+v\nwant %+v", got, want)
					}
				})
			}
		}
	}
}

// throughRPC calls GatewayService.
func throughRPC(client ktmsv1connect.GatewayServiceClient) func(*testing.T, doorCase, bool) outcome {
	return func(t *testing.T, c doorCase, stream bool) outcome {
		t.Helper()
		req := &ktmsv1.GenerateTextRequest{}
		if err := protojson.Unmarshal([]byte(c.RPC), req); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if !stream {
			r, err := client.GenerateText(ctx, req)
			if err != nil {
				return outcome{Reason: reasonOf(t, err)}
			}
			choice := r.GetChoices()[0]
			out := outcome{Model: r.GetResolvedModel(), Rule: r.GetMatchedRule(), Text: choice.GetText(), Refusal: choice.GetRefusal(),
				Reasoning: choice.GetReasoning(), Finish: choice.GetFinishReason(), Input: r.GetUsage().GetInput(),
				Output: r.GetUsage().GetOutput(), Cached: r.GetUsage().GetCacheRead()}
			for _, call := range choice.GetToolCalls() {
				out.Calls = append(out.Calls, call.GetId()+" "+call.GetName()+" "+call.GetArguments())
			}
			return out
		}
		events, err := client.GenerateTextStream(ctx, &ktmsv1.GenerateTextStreamRequest{Request: req})
		if err != nil {
			return outcome{Reason: reasonOf(t, err)}
		}
		defer events.Close()
		var out outcome
		for {
			chunk, err := events.Receive()
			if errors.Is(err, io.EOF) {
				return out
			}
			if err != nil {
				return outcome{Reason: reasonOf(t, err)}
			}
			out.add(chunk)
		}
	}
}

func (o *outcome) add(c *ktmsv1.GenerateTextChunk) {
	if c.GetResolvedModel() != "" {
		o.Model, o.Rule = c.GetResolvedModel(), c.GetMatchedRule()
	}
	o.Text += c.GetDelta()
	o.Refusal += c.GetRefusalDelta()
	o.Reasoning += c.GetReasoningDelta()
	if c.GetFinishReason() != "" {
		o.Finish = c.GetFinishReason()
	}
	if u := c.GetUsage(); u != nil {
		o.Input, o.Output, o.Cached = u.GetInput(), u.GetOutput(), u.GetCacheRead()
	}
	for _, call := range c.GetToolCallChunks() {
		if int(call.GetIndex()) == len(o.Calls) {
			o.Calls = append(o.Calls, call.GetId()+" "+call.GetName()+" ")
		}
		o.Calls[call.GetIndex()] += call.GetArguments()
	}
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var failed *connect.Error
	if !errors.As(err, &failed) {
		t.Fatalf("not an RPC error: %v", err)
	}
	if strings.Contains(failed.Message(), servertest.VendorKey) {
		t.Errorf("the error shows the vendor key: %v", failed)
	}
	for _, detail := range failed.Details() {
		message, err := connectproto.UnmarshalErrorDetail(detail)
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := message.(*errdetails.ErrorInfo); ok && info.GetDomain() == "ktms" {
			return info.GetReason()
		}
	}
	t.Fatalf("no ErrorInfo in %v", failed)
	return ""
}

// chatWire is what the official clients read of an answer or of a chunk.
type chatWire struct {
	ID, Model string
	Choices   []struct {
		Index          int
		Message, Delta struct {
			Role, Content, Refusal string
			Reasoning              string `json:"reasoning_content"`
			ToolCalls              []struct {
				Index    *int
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
		Details    struct {
			CachedTokens int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error *struct{ Message, Type, Code string }
}

// throughOpenAI calls POST /v1/chat/completions.
func throughOpenAI(base, key string) func(*testing.T, doorCase, bool) outcome {
	return func(t *testing.T, c doorCase, stream bool) outcome {
		t.Helper()
		body := map[string]any{}
		if err := json.Unmarshal([]byte(c.HTTP), &body); err != nil {
			t.Fatal(err)
		}
		if stream {
			body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
		}
		resp := post(t, base, key, body)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(servertest.VendorKey)) {
			t.Errorf("the answer shows the vendor key: %s", text)
		}
		if resp.Header.Get("X-KTMS-Request-Id") == "" {
			t.Error("no request id")
		}
		if resp.StatusCode != http.StatusOK || !stream {
			return wholeOf(t, resp, text)
		}
		return streamedOf(t, resp, text)
	}
}

func post(t *testing.T, base, key string, body any) *http.Response {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func wholeOf(t *testing.T, resp *http.Response, text []byte) outcome {
	t.Helper()
	var wire chatWire
	if err := json.Unmarshal(text, &wire); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if wire.Error != nil {
		if wire.Error.Message == "" || wire.Error.Type == "" {
			t.Errorf("an error without words: %s", text)
		}
		return outcome{Reason: wire.Error.Code, HTTP: resp.StatusCode}
	}
	m := wire.Choices[0].Message
	out := outcome{Model: wire.Model, Rule: resp.Header.Get("X-KTMS-Rule"), Text: m.Content, Refusal: m.Refusal, Reasoning: m.Reasoning,
		Finish: wire.Choices[0].FinishReason, Input: wire.Usage.Prompt, Output: wire.Usage.Completion, Cached: wire.Usage.Details.CachedTokens}
	for _, call := range m.ToolCalls {
		out.Calls = append(out.Calls, call.ID+" "+call.Function.Name+" "+call.Function.Arguments)
	}
	return out
}

// streamedOf reads a stream as strictly as the strictest official client.
func streamedOf(t *testing.T, resp *http.Response, text []byte) outcome {
	t.Helper()
	out := outcome{Rule: resp.Header.Get("X-KTMS-Rule")}
	id, done := "", 0
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if done > 0 {
			t.Errorf("an event after [DONE]: %s", data)
		}
		if data == "[DONE]" {
			done++
			continue
		}
		var wire chatWire
		if err := json.Unmarshal([]byte(data), &wire); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		if strings.Contains(data, `"error"`) {
			t.Fatalf("an error key in a healthy stream: %s", data)
		}
		if id == "" {
			id = wire.ID
			if wire.Choices[0].Delta.Role != "assistant" {
				t.Errorf("the first delta has no role: %s", data)
			}
		}
		if wire.ID != id {
			t.Errorf("the id changed from %s to %s", id, wire.ID)
		}
		out.Model = wire.Model
		if wire.Usage != nil {
			if len(wire.Choices) != 0 {
				t.Errorf("the usage chunk has choices: %s", data)
			}
			out.Input, out.Output, out.Cached = wire.Usage.Prompt, wire.Usage.Completion, wire.Usage.Details.CachedTokens
			continue
		}
		choice := wire.Choices[0]
		out.Text += choice.Delta.Content
		out.Refusal += choice.Delta.Refusal
		out.Reasoning += choice.Delta.Reasoning
		if choice.FinishReason != "" {
			out.Finish = choice.FinishReason
			if strings.Contains(data, `"content"`) {
				t.Errorf("the finishing delta has content: %s", data)
			}
		}
		for _, call := range choice.Delta.ToolCalls {
			if call.Index == nil {
				t.Fatalf("a tool delta without index: %s", data)
			}
			if *call.Index == len(out.Calls) {
				if call.Type != "function" {
					t.Errorf("the first delta of a call has type %q", call.Type)
				}
				out.Calls = append(out.Calls, call.ID+" "+call.Function.Name+" ")
			}
			out.Calls[*call.Index] += call.Function.Arguments
		}
	}
	if done != 1 {
		t.Errorf("%d times [DONE], want once", done)
	}
	if !slices.Contains([]string{"stop", "length", "tool_calls", "content_filter"}, out.Finish) {
		t.Errorf("finish_reason %q", out.Finish)
	}
	return out
}
