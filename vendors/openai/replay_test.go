package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

const tinyLine = "Hello from the tiny lab model: it always says this line of words and then ends its turn, café ☃."

// replay serves the recorded bytes of one answer, in pieces of the given size, and returns a target for it. The bodies
// that are sent to it go to the returned channel.
func replay(t *testing.T, name string, pieces int) (vendors.Target, <-chan []byte) {
	t.Helper()
	recorded, err := os.ReadFile(filepath.Join("testdata", "ollama", name+".resp"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	bodies := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		bodies <- body
		for rest := recorded; len(rest) > 0; {
			n := min(pieces, len(rest))
			if _, err := conn.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
	}()
	return vendors.Target{Vendor: vendors.Ollama, Model: "lab-script", BaseURL: "http://" + l.Addr().String() + "/v1"}, bodies
}

// streamed is a stream put together.
type streamed struct {
	head      *vendors.Head
	text      string
	reasoning string
	calls     []*ktmsv1.ToolCallChunk
	finish    string
	usage     *ktmsv1.TokensUsage
	chunks    []*ktmsv1.GenerateTextChunk
	err       error
}

func read(t *testing.T, v *Vendor, target vendors.Target, req *ktmsv1.GenerateTextRequest) *streamed {
	t.Helper()
	s := &streamed{}
	for event, err := range v.Stream(t.Context(), target, req) {
		if err != nil {
			s.err = err
			continue
		}
		if event.Head != nil {
			s.head = event.Head
			continue
		}
		c := event.Chunk
		s.chunks = append(s.chunks, c)
		s.text += c.GetDelta()
		s.reasoning += c.GetReasoningDelta()
		s.calls = append(s.calls, c.GetToolCallChunks()...)
		s.finish += c.GetFinishReason()
		if c.GetUsage() != nil {
			s.usage = c.GetUsage()
		}
	}
	return s
}

func newVendor(t *testing.T) *Vendor {
	v := New(Options{Version: "test"})
	t.Cleanup(v.CloseIdleConnections)
	return v
}

func simple() *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("hello")}}
}

func weather() *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{
		Messages: []*ktmsv1.Message{user("weather in Paris?")},
		Tools: []*ktmsv1.Tool{{Name: "get_weather", Description: "Weather of a city",
			ParametersJson: `{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["c","f"]}},"required":["city"]}`}},
	}
}

func weatherResult() *ktmsv1.GenerateTextRequest {
	req := weather()
	req.Messages = append(req.Messages,
		&ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, ToolCalls: []*ktmsv1.ToolCall{{Id: "call_1", Name: "get_weather", Arguments: `{"city":"Paris"}`}}},
		&ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "call_1", Text: "12 c"})
	return req
}

func TestReplayUnary(t *testing.T) {
	for name, want := range map[string]struct {
		model, text, reasoning, finish string
		in, out                        int64
	}{
		"10-chat-unary-cold":     {"lab-script", tinyLine, "", "stop", 12, 20},
		"11-chat-unary-warm":     {"lab-script", tinyLine, "", "stop", 12, 20},
		"14-chat-length":         {"lab-random", "ire!o:\x1aPe", "", "length", 12, 24},
		"19-tools-result":        {"lab-script", tinyLine, "The user wants a line to read.\n", "stop", 261, 28},
		"21-think-none":          {"lab-script", tinyLine, "", "stop", 12, 20},
		"25-json-schema":         {"lab-random", "{\n\"ok\": true }\n\n\t\t\t", "", "stop", 12, 20},
		"26-stop":                {"lab-script", "Hello from the tiny lab model: it", "", "stop", 12, 7},
		"37-overlong-context":    {"lab-script", "Hello from the tiny lab", "", "length", 2048, 4},
		"43-image-to-text-model": {"lab-script", tinyLine, "", "stop", 22, 20},
		"76-after-runner-killed": {"lab-slow", "", "", "length", 12, 2},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := replay(t, name, 1<<20)
			answer, err := newVendor(t).Generate(t.Context(), target, simple())
			if err != nil {
				t.Fatal(err)
			}
			r := answer.Response
			c := r.GetChoices()[0]
			if c.GetText() != want.text || c.GetReasoning() != want.reasoning || c.GetFinishReason() != want.finish {
				t.Errorf("choice %v", c)
			}
			if r.GetUsage().GetInput() != want.in || r.GetUsage().GetOutput() != want.out {
				t.Errorf("usage %v", r.GetUsage())
			}
			if r.GetVendorModel() != want.model || r.GetSystemFingerprint() != "fp_ollama" || !strings.HasPrefix(r.GetVendorResponseId(), "chatcmpl-") || r.GetExtraJson() != "" || c.GetExtraJson() != "" {
				t.Errorf("%v", r)
			}
			if len(answer.Head.Dropped) > 0 {
				t.Errorf("dropped %v", answer.Head.Dropped)
			}
		})
	}
}

func TestReplayUnaryTools(t *testing.T) {
	target, _ := replay(t, "17-tools-unary", 1<<20)
	answer, err := newVendor(t).Generate(t.Context(), target, weather())
	if err != nil {
		t.Fatal(err)
	}
	c := answer.Response.GetChoices()[0]
	call := c.GetToolCalls()[0]
	if c.GetFinishReason() != "tool_calls" || c.GetText() != "" || call.GetId() != "call_uj82dxwc" || call.GetName() != "get_weather" ||
		call.GetArguments() != `{"city":"Paris","unit":"c"}` || call.GetType() != "function" || call.GetExtraJson() != "" {
		t.Errorf("%v", c)
	}
}

func TestReplayLogprobs(t *testing.T) {
	target, _ := replay(t, "23-logprobs", 1<<20)
	answer, err := newVendor(t).Generate(t.Context(), target, simple())
	if err != nil {
		t.Fatal(err)
	}
	c := answer.Response.GetChoices()[0]
	if c.GetText() != "Hello from" || !strings.HasPrefix(c.GetLogprobsJson(), `{"content":[{"token":"Hello","logprob":0,"bytes":[72,`) || !json.Valid([]byte(c.GetLogprobsJson())) {
		t.Errorf("%v", c)
	}
}

func TestReplayStreams(t *testing.T) {
	for name, want := range map[string]struct {
		text, reasoning, finish string
		usage                   *ktmsv1.TokensUsage
	}{
		"12-chat-stream-usage":    {tinyLine, "", "stop", &ktmsv1.TokensUsage{Input: 12, Output: 20}},
		"13-chat-stream-no-usage": {tinyLine, "", "stop", nil},
		"15-chat-length-stream":   {"ire!o:\x1aPe", "", "length", &ktmsv1.TokensUsage{Input: 12, Output: 24}},
		"22-think-default-stream": {tinyLine, "The user wants a line to read.\n", "stop", &ktmsv1.TokensUsage{Input: 12, Output: 28}},
	} {
		for _, pieces := range []int{1 << 20, 100, 1} {
			t.Run(name, func(t *testing.T) {
				target, _ := replay(t, name, pieces)
				s := read(t, newVendor(t), target, simple())
				if s.err != nil {
					t.Fatal(s.err)
				}
				if s.text != want.text || s.reasoning != want.reasoning || s.finish != want.finish {
					t.Errorf("text %q, reasoning %q, finish %q", s.text, s.reasoning, s.finish)
				}
				if s.usage.GetInput() != want.usage.GetInput() || s.usage.GetOutput() != want.usage.GetOutput() || (s.usage == nil) != (want.usage == nil) {
					t.Errorf("usage %v", s.usage)
				}
				if s.head == nil || s.chunks[0].GetVendorModel() != "lab-script" && s.chunks[0].GetVendorModel() != "lab-random" {
					t.Errorf("head %v, first %v", s.head, s.chunks[0])
				}
			})
		}
	}
}

func TestReplayStreamTools(t *testing.T) {
	target, _ := replay(t, "18-tools-stream", 1<<20)
	s := read(t, newVendor(t), target, weather())
	if s.err != nil || s.finish != "tool_calls" || s.usage.GetInput() != 160 || len(s.calls) != 1 {
		t.Fatalf("%+v", s)
	}
	if c := s.calls[0]; c.GetIndex() != 0 || c.GetId() != "call_s8miyt18" || c.GetName() != "get_weather" || c.GetArguments() != `{"city":"Paris","unit":"c"}` {
		t.Errorf("%v", c)
	}
}

func TestReplayErrors(t *testing.T) {
	for name, want := range map[string]struct {
		kind    vendors.Kind
		status  int
		message string
	}{
		"20-tools-unsupported-model":  {vendors.Invalid, 400, "does not support tools"},
		"21-think-unary":              {vendors.Invalid, 400, `think value "high" is not supported`},
		"22-think-stream":             {vendors.Invalid, 400, `think value "high" is not supported`},
		"30-err-unknown-model":        {vendors.Denied, 404, "model 'nope' not found"},
		"31-err-unknown-model-stream": {vendors.Denied, 404, "model 'nope' not found"},
		"32-err-bad-json":             {vendors.Invalid, 400, "unexpected EOF"},
		"33-err-wrong-type":           {vendors.Invalid, 400, "cannot unmarshal string"},
		"34-err-empty-body":           {vendors.Invalid, 400, "EOF"},
		"35-err-empty-messages":       {vendors.Invalid, 400, "[] is too short - 'messages'"},
		"36-err-no-model":             {vendors.Invalid, 400, "model is required"},
		"39-err-get-on-post":          {vendors.Denied, 405, "405 method not allowed"},
		"40-err-unknown-path":         {vendors.Denied, 404, "404 page not found"},
		"77-runner-killed-unary":      {vendors.Unavailable, 500, "model runner has unexpectedly stopped"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				target, _ := replay(t, name, 1<<20)
				var err error
				if v := newVendor(t); stream {
					err = read(t, v, target, simple()).err
				} else {
					_, err = v.Generate(t.Context(), target, simple())
				}
				e, ok := err.(*vendors.Error)
				if !ok || e.Kind != want.kind || e.Status != want.status || !strings.Contains(e.Message, want.message) || e.Vendor != vendors.Ollama {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// A runner that dies leaves a stream that ends as if nothing had happened, but for the finish reason.
func TestReplayRunnerKilled(t *testing.T) {
	target, _ := replay(t, "75-runner-killed-midstream", 1<<20)
	s := read(t, newVendor(t), target, simple())
	e, ok := s.err.(*vendors.Error)
	if !ok || e.Kind != vendors.Unavailable || s.text != "~" || s.finish != "" || s.usage != nil {
		t.Errorf("%+v", s)
	}
	for _, c := range s.chunks[1:] {
		if c.GetVendorModel() != "" {
			t.Errorf("the model was said twice: %v", c)
		}
	}
}

// Fields that Ollama ignores are reported once it is known that it is Ollama.
func TestReplayIgnoredFields(t *testing.T) {
	req := simple()
	req.N, req.Seed = new(int32(2)), new(int64(1))
	target, _ := replay(t, "24-n2", 1<<20)
	answer, err := newVendor(t).Generate(t.Context(), target, req)
	if err != nil || !reflect.DeepEqual(answer.Head.Dropped, []string{"n"}) {
		t.Errorf("%+v %v", answer, err)
	}
	target, _ = replay(t, "12-chat-stream-usage", 1<<20)
	if s := read(t, newVendor(t), target, req); s.err != nil || !reflect.DeepEqual(s.head.Dropped, []string{"n"}) || s.text != tinyLine {
		t.Errorf("%+v", s)
	}

	req.StrictParams = true
	target, _ = replay(t, "24-n2", 1<<20)
	_, err = newVendor(t).Generate(t.Context(), target, req)
	if e, ok := err.(*vendors.Error); !ok || e.Kind != vendors.Unsupported || e.Param != "n" {
		t.Errorf("%v", err)
	}
	target, _ = replay(t, "12-chat-stream-usage", 1<<20)
	s := read(t, newVendor(t), target, req)
	if e, ok := s.err.(*vendors.Error); !ok || e.Kind != vendors.Unsupported || e.Param != "n" || s.head != nil || s.chunks != nil {
		t.Errorf("%+v", s)
	}
}

// What the engine was asked when it gave these answers is what this dialect asks.
func TestReplayRequests(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		req    *ktmsv1.GenerateTextRequest
		stream bool
	}{
		"12-chat-stream-usage": {"lab-script", simple(), true},
		"14-chat-length":       {"lab-random", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("hello")}, MaxOutputTokens: 24, Seed: new(int64(7))}, false},
		"17-tools-unary":       {"lab-script", weather(), false},
		"18-tools-stream":      {"lab-script", weather(), true},
		"19-tools-result":      {"lab-script", weatherResult(), false},
		"23-logprobs":          {"lab-script", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("hello")}, MaxOutputTokens: 2, Logprobs: new(true), TopLogprobs: new(int32(2))}, false},
		"26-stop":              {"lab-script", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("hello")}, Stop: []string{" always"}}, false},
	} {
		recorded, err := os.ReadFile(filepath.Join("testdata", "ollama", name+".req"))
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := bytes.Cut(recorded, []byte("\r\n\r\n"))
		target, bodies := replay(t, name, 1<<20)
		target.Model = c.model
		v := newVendor(t)
		if c.stream {
			read(t, v, target, c.req)
		} else if _, err := v.Generate(t.Context(), target, c.req); err != nil {
			t.Error(name, err)
		}
		var want, got any
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatal(name, err)
		}
		sent := <-bodies
		if err := json.Unmarshal(sent, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\nsent     %s\nrecorded %s", name, err, sent, body)
		}
	}
}
