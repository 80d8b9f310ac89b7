package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/vendortest"
)

const (
	system    = ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM
	user      = ktmsv1.MessageRole_MESSAGE_ROLE_USER
	assistant = ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT
	toolRole  = ktmsv1.MessageRole_MESSAGE_ROLE_TOOL
)

type request = ktmsv1.GenerateTextRequest

func say(role ktmsv1.MessageRole, text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: role, Text: text}
}

func uses(id string) *ktmsv1.ToolCall {
	return &ktmsv1.ToolCall{Id: id, Name: "f", Arguments: "{}", Type: "function"}
}

func result(id, text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: toolRole, ToolCallId: id, Text: text}
}

func function() []*ktmsv1.Tool {
	return []*ktmsv1.Tool{{Name: "f", ParametersJson: `{"type":"object","properties":{}}`}}
}

// wire is what the tests read of a body.
type wire struct {
	MaxTokens int64 `json:"max_tokens"`
	System    []struct {
		Text  string
		Cache json.RawMessage `json:"cache_control"`
	}
	Messages []struct {
		Role    string
		Content []map[string]json.RawMessage
	}
	Tools []struct {
		Name   string
		Strict bool
		Schema json.RawMessage `json:"input_schema"`
		Cache  json.RawMessage `json:"cache_control"`
	}
	Choice struct{ Type string } `json:"tool_choice"`
	Think  struct {
		Type   string
		Budget int64 `json:"budget_tokens"`
	} `json:"thinking"`
	Output struct {
		Effort string
		Format struct{ Schema json.RawMessage }
	} `json:"output_config"`
	Temperature *float64
	TopP        *float64 `json:"top_p"`
}

// shape is the conversation in short: "user: text tool_result | assistant: tool_use".
func (w *wire) shape() string {
	turns := make([]string, 0, len(w.Messages))
	for _, m := range w.Messages {
		kinds := m.Role + ":"
		for _, b := range m.Content {
			kinds += " " + strings.Trim(string(b["type"]), `"`)
			if b["text"] != nil {
				var text string
				_ = json.Unmarshal(b["text"], &text)
				kinds += fmt.Sprintf("=%q", text)
			}
			if id := b["tool_use_id"]; id != nil {
				kinds += "=" + strings.Trim(string(id), `"`)
			}
		}
		turns = append(turns, kinds)
	}
	return strings.Join(turns, " | ")
}

func target(model string) vendors.Target {
	return vendors.Target{Vendor: vendors.Anthropic, Model: model, Key: vendors.NewSecret("key")}
}

// encodes encodes a request that the vendor has to take.
func encodes(t *testing.T, to vendors.Target, req *request) (*encoded, *wire) {
	t.Helper()
	out, failed := encode(to, req, false)
	if failed != nil {
		t.Fatal(failed)
	}
	wrong := vendortest.Anthropic().Check(&vendortest.Call{Method: http.MethodPost, Path: "/v1/messages", Body: out.body, Header: http.Header{
		"X-Api-Key": {"k"}, "Anthropic-Version": {apiVersion}, "Content-Type": {"application/json"},
	}})
	if wrong != "" {
		t.Errorf("the vendor would refuse this: %s\n%s", wrong, out.body)
	}
	var w wire
	if err := json.Unmarshal(out.body, &w); err != nil {
		t.Fatalf("%v: %s", err, out.body)
	}
	return out, &w
}

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name     string
		model    string
		messages []*ktmsv1.Message
		want     string
	}{
		{"the assistant begins", "claude-opus-5-5", []*ktmsv1.Message{say(assistant, "a"), say(user, "u")}, `user: text="…" | assistant: text="a" | user: text="u"`},
		{"nothing but blanks", "claude-opus-5-5", []*ktmsv1.Message{say(user, " \n")}, `user: text="…"`},
		{"nothing but an instruction", "claude-opus-5-5", []*ktmsv1.Message{say(system, "s")}, `user: text="s"`},
		{"the assistant ends, no prefill", "claude-opus-5-5", []*ktmsv1.Message{say(user, "u"), say(assistant, "a ")}, `user: text="u" | assistant: text="a " | user: text="Continue."`},
		{"the assistant ends, prefill", "claude-haiku-4-5-20251001", []*ktmsv1.Message{say(user, "u"), say(assistant, "a \n ")}, `user: text="u" | assistant: text="a"`},
		{"an instruction in the middle", "claude-opus-5-5", []*ktmsv1.Message{say(user, "u"), say(system, "s"), say(user, "v")},
			`user: text="u" text="<system_instruction>\ns\n</system_instruction>" text="v"`},
		{"text before results", "claude-opus-5-5", []*ktmsv1.Message{
			say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("a"), uses("b")}}, say(user, "between"), result("b", "2"), result("a", "1")},
			`user: text="u" | assistant: tool_use tool_use | user: tool_result=a tool_result=b text="between"`},
		{"assistants in a row", "claude-opus-5-5", []*ktmsv1.Message{
			say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("a")}}, say(user, ""), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("b")}}, result("a", "1"), result("b", "2")},
			`user: text="u" | assistant: tool_use tool_use | user: tool_result=a tool_result=b`},
	} {
		req := &request{Messages: c.messages, Tools: function()}
		out, w := encodes(t, target(c.model), req)
		if got := w.shape(); got != c.want {
			t.Errorf("%s: %s\n%s", c.name, got, out.body)
		}
	}
}

func TestIDs(t *testing.T) {
	messages := []*ktmsv1.Message{say(user, "u")}
	for range 3 { // some vendors count from 0 in each answer
		messages = append(messages, &ktmsv1.Message{Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("call:0"), uses("call_1")}},
			result("call_1", "one"), result("call:0", "zero"))
	}
	first, _ := encodes(t, target("claude-opus-5-5"), &request{Messages: messages, Tools: function()})
	again, _ := encodes(t, target("claude-opus-5-5"), &request{Messages: messages, Tools: function()})
	if string(first.body) != string(again.body) {
		t.Error("the same history becomes another one")
	}
}

func TestWrongHistories(t *testing.T) {
	asks := &ktmsv1.Message{Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("id-1"), uses("id-2")}}
	for name, messages := range map[string][]*ktmsv1.Message{
		"no result":       {say(user, "u"), asks},
		"one is missing":  {say(user, "u"), asks, result("id-1", "r"), say(assistant, "a")},
		"no call":         {say(user, "u"), result("id-2", "r")},
		"twice":           {say(user, "u"), asks, result("id-2", "r"), result("id-2", "r"), result("id-1", "r")},
		"after the next":  {say(user, "u"), asks, say(user, "v"), say(assistant, "a"), result("id-2", "r"), result("id-1", "r")},
		"no role":         {{Text: "id-2"}},
		"half an effort":  {say(user, "u"), asks, result("id-1", "r")},
		"broken data URL": {{Role: user, Parts: []*ktmsv1.ContentPart{{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "data:image/png;base64,§"}}}}}}},
	} {
		for _, model := range []string{"claude-opus-5-5", "claude-haiku-4-5-20251001"} {
			out, failed := encode(target(model), &request{Messages: messages, Tools: function(), ReasoningEffort: "high"}, false)
			if failed == nil || failed.Kind != vendors.Invalid || strings.Contains(name, "id-") && !strings.Contains(failed.Message, "id-2") {
				t.Errorf("%s: %v %v", name, out, failed)
			}
		}
	}
}

// TestCutArguments: an answer that was cut left half a call in the history. Another vendor may take it.
func TestCutArguments(t *testing.T) {
	for _, arguments := range []string{`[1]`, `{"a":`, `null`} {
		_, failed := encode(target("claude-opus-5-5"), &request{Tools: function(), Messages: []*ktmsv1.Message{
			say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{{Id: "a", Name: "f", Arguments: arguments}}}, result("a", "r")}}, false)
		if failed == nil || failed.Kind != vendors.Unsupported {
			t.Errorf("%s: %v", arguments, failed)
		}
	}
}

// TestManyCalls: thousands of calls with one id take no time, and keep their results.
func TestManyCalls(t *testing.T) {
	const n = 20_000
	calls := &ktmsv1.Message{Role: assistant}
	messages := []*ktmsv1.Message{say(user, "u"), calls}
	for i := range n {
		call := uses("a")
		call.Name = fmt.Sprintf("f%d", i)
		calls.ToolCalls = append(calls.ToolCalls, call)
		messages = append(messages, result("a", fmt.Sprintf("r%d.", i)))
	}
	began := time.Now()
	out, failed := encode(target("claude-opus-5-5"), &request{Messages: messages}, false)
	if failed != nil || time.Since(began) > time.Minute {
		t.Fatalf("%v after %v", failed, time.Since(began))
	}
	var w wire
	if err := json.Unmarshal(out.body, &w); err != nil {
		t.Fatal(err)
	}
	for i, b := range w.Messages[2].Content {
		if string(b["tool_use_id"]) != string(w.Messages[1].Content[i]["id"]) || !strings.Contains(string(b["content"]), fmt.Sprintf("r%d.", i)) {
			t.Fatalf("result %d: %s", i, b["content"])
		}
	}
}

func TestContent(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n"
	image := func(i *ktmsv1.ImagePart) *ktmsv1.ContentPart {
		return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: i}}
	}
	document := func(d *ktmsv1.DocumentPart) *ktmsv1.ContentPart {
		return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: d}}
	}
	for _, c := range []struct {
		name string
		part *ktmsv1.ContentPart
		want string // of the block; empty if the vendor cannot take it
	}{
		{"bytes", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Data{Data: []byte(png)}}), `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`},
		{"bytes of a declared type", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Data{Data: []byte("x")}, MimeType: "image/JPG"}), `{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"eA=="}}`},
		{"data URL", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "data:image/gif;base64,R0lGODlh"}}), `{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"R0lGODlh"}}`},
		{"data URL without a type or padding", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "data:;base64,iVBORw0KGgo"}}), `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`},
		{"https", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "https://x/a.png"}}), `{"type":"image","source":{"type":"url","url":"https://x/a.png"}}`},
		{"http", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "http://x/a.png"}}), ""},
		{"BMP", image(&ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Data{Data: []byte("BM....")}}), ""},
		{"PDF", document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: []byte("%PDF-1.7")}, Filename: "a.pdf"}), `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjc="},"title":"a.pdf"}`},
		{"text", document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: []byte("a,b")}, MimeType: "text/csv"}), `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a,b"}}`},
		{"data URL of text", document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{Url: "data:text/plain;charset=utf-8,a%20b"}}), `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a b"}}`},
		{"Word", document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: []byte("PK\x03\x04")}}), ""},
		{"file", document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_FileId{FileId: "file_1"}}), `{"type":"document","source":{"type":"file","file_id":"file_1"}}`},
	} {
		req := &request{Messages: []*ktmsv1.Message{{Role: user, Parts: []*ktmsv1.ContentPart{c.part}}}}
		if c.want == "" {
			if out, failed := encode(target("claude-opus-5-5"), req, false); failed == nil || failed.Kind != vendors.Unsupported {
				t.Errorf("%s: %v %v", c.name, out, failed)
			}
			continue
		}
		if out, _ := encodes(t, target("claude-opus-5-5"), req); !strings.Contains(string(out.body), c.want) {
			t.Errorf("%s: %s", c.name, out.body)
		}
		// The same within a tool's result, which an instruction and a next round may follow.
		req.Messages = []*ktmsv1.Message{say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("a")}}, {Role: toolRole, ToolCallId: "a", Parts: []*ktmsv1.ContentPart{c.part}, ExtraJson: `{"is_error":true}`}}
		if out, _ := encodes(t, target("claude-opus-5-5"), req); !strings.Contains(string(out.body), c.want) || !strings.Contains(string(out.body), `"is_error":true`) {
			t.Errorf("%s in a result: %s", c.name, out.body)
		}
		req.Messages = []*ktmsv1.Message{say(user, "u"), {Role: assistant, Parts: []*ktmsv1.ContentPart{c.part}}, say(user, "v")}
		if out, failed := encode(target("claude-opus-5-5"), req, false); failed == nil || failed.Kind != vendors.Unsupported {
			t.Errorf("%s in an answer: %v %v", c.name, out, failed)
		}
	}
}

func TestThinking(t *testing.T) {
	for _, c := range []struct {
		model, effort string
		max, most     int32 // of the request, of the catalogue
		think         string
		budget        int64
		wireEffort    string
		maxTokens     int64
		dropped       bool
	}{
		{"claude-opus-5-5", "none", 0, 0, "", 0, "", 28672, true},
		{"claude-haiku-5-5", "none", 0, 0, "disabled", 0, "", 4096, false},
		{"claude-opus-5-5", "minimal", 0, 0, "", 0, "low", 6144, false},
		{"claude-opus-5-5", "xhigh", 0, 64000, "", 0, "xhigh", 64000, false},
		{"claude-opus-5-5", "", 0, 0, "", 0, "", 28672, false},
		{"claude-opus-5-5", "max", 0, 0, "", 0, "max", 64000, false},
		{"claude-opus-5-5", "max", 5000, 0, "", 0, "max", 5000, false},
		{"claude-opus-4-20250514", "max", 0, 0, "enabled", 27904, "", 32000, false},
		{"glm-4.6", "high", 0, 0, "", 0, "", 4096, true},
		{"glm-4.6", "none", 0, 0, "", 0, "", 4096, false},
		{"claude-opus-5", "none", 0, 0, "disabled", 0, "", 4096, false},
		{"claude-opus-4-8", "max", 0, 0, "adaptive", 0, "max", 64000, false},
		{"claude-sonnet-4-6", "xhigh", 0, 0, "adaptive", 0, "high", 28672, false},
		{"claude-haiku-4-5-20251001", "high", 0, 0, "enabled", 24576, "", 28672, false},
		{"claude-haiku-4-5-20251001", "high", 0, 6000, "enabled", 3000, "", 6000, false},
		{"claude-haiku-4-5-20251001", "low", 3000, 0, "enabled", 1500, "", 3000, false},
		{"claude-haiku-4-5-20251001", "low", 2000, 0, "", 0, "", 2000, true},
		{"claude-haiku-4-5-20251001", "none", 0, 0, "disabled", 0, "", 4096, false},
		{"claude-haiku-4-5-20251001", "", 9000, 8192, "", 0, "", 8192, false},
		{"claude-3-5-haiku-latest", "none", 0, 0, "", 0, "", 4096, false},
		{"claude-3-5-haiku-latest", "high", 0, 0, "", 0, "", 4096, true},
		{"claude-opus-5-5", "enormous", 0, 0, "", 0, "", 28672, true},
	} {
		to := target(c.model)
		to.MaxOutputTokens = int64(c.most)
		out, w := encodes(t, to, &request{Messages: []*ktmsv1.Message{say(user, "u")}, ReasoningEffort: c.effort, MaxOutputTokens: c.max, Temperature: new(1.0)})
		if w.Think.Type != c.think || w.Think.Budget != c.budget || w.Output.Effort != c.wireEffort || w.MaxTokens != c.maxTokens || slices.Contains(out.dropped, "reasoning_effort") != c.dropped {
			t.Errorf("%+v: dropped %v, %s", c, out.dropped, out.body)
		}
	}
}

// TestAdaptiveThinking: the vendor takes no sampling beside it either, nor a demand for a call where it is always on.
func TestAdaptiveThinking(t *testing.T) {
	out, w := encodes(t, target("claude-opus-4-6"), &request{
		Messages: []*ktmsv1.Message{say(user, "u")}, ReasoningEffort: "high", Temperature: new(0.2), TopP: new(0.5), TopK: new(int32(5)),
	})
	if w.Think.Type != "adaptive" || !slices.Equal(out.dropped, []string{"temperature", "top_p", "top_k"}) {
		t.Errorf("%v %s", out.dropped, out.body)
	}
	for _, effort := range []string{"", "low", "none"} {
		out, w := encodes(t, target("claude-opus-5"), &request{
			Messages: []*ktmsv1.Message{say(user, "u")}, ReasoningEffort: effort, Tools: function(),
			ToolChoice: &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED},
		})
		if w.Think.Type != "disabled" || w.Choice.Type != "any" || len(out.dropped) > 0 || effort == "low" && w.Output.Effort != "low" {
			t.Errorf("%s: %v %s", effort, out.dropped, out.body)
		}
	}
}

// TestOtherModels: what a server that imitates the API serves is held to none of the rules for Claude, and enforces
// nothing that is known.
func TestOtherModels(t *testing.T) {
	out, failed := encode(target("glm-4.6"), &request{
		Messages: []*ktmsv1.Message{say(user, "u")}, Tools: function(), ToolChoice: &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED},
		Temperature: new(0.2), TopP: new(0.5), TopK: new(int32(5)), ResponseSchemaJson: `{"type":"object","properties":{},"additionalProperties":false}`,
	}, false)
	if failed != nil {
		t.Fatal(failed)
	}
	for _, want := range []string{`"temperature":0.2,"top_p":0.5,"top_k":5`, `"tool_choice":{"type":"any"}`, schemaOnly[:30]} {
		if !strings.Contains(string(out.body), want) {
			t.Errorf("no %s in %s", want, out.body)
		}
	}
	if out.enforced || len(out.dropped) > 0 || strings.Contains(string(out.body), "output_config") || strings.Contains(string(out.body), `"thinking"`) {
		t.Errorf("%v %v %s", out.enforced, out.dropped, out.body)
	}
}

// TestManualThinking: what does not go together with a budget of thinking.
func TestManualThinking(t *testing.T) {
	to := target("claude-haiku-4-5-20251001")
	base := func() *request {
		return &request{Messages: []*ktmsv1.Message{say(user, "u")}, ReasoningEffort: "medium", Tools: function()}
	}
	req := base()
	req.Temperature, req.TopP, req.TopK = new(0.5), new(0.5), new(int32(3))
	if out, w := encodes(t, to, req); w.Think.Type != "enabled" || !slices.Equal(out.dropped, []string{"temperature", "top_p", "top_k"}) {
		t.Errorf("%v %s", out.dropped, out.body)
	}
	req = base()
	req.ToolChoice = &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED}
	if out, w := encodes(t, to, req); w.Think.Type != "" || w.Choice.Type != "any" || !slices.Equal(out.dropped, []string{"reasoning_effort"}) {
		t.Errorf("%v %s", out.dropped, out.body)
	}
	req = base()
	req.Messages = append(req.Messages, &ktmsv1.Message{Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("a")}}, result("a", "r"))
	if out, w := encodes(t, to, req); w.Think.Type != "" || !slices.Equal(out.dropped, []string{"reasoning_effort"}) {
		t.Errorf("%v %s", out.dropped, out.body)
	}
	req.Messages[1].Opaque = vendors.SealOpaque(vendors.Anthropic, to.Model, []byte(`[{"type":"thinking","thinking":"t","signature":"s"}]`))
	if out, w := encodes(t, to, req); w.Think.Type != "enabled" || len(out.dropped) > 0 {
		t.Errorf("%v %s", out.dropped, out.body)
	}
	req = base()
	req.Messages = append(req.Messages, say(assistant, "pre"))
	encodes(t, to, req)
	// Thinking on request yields to a forced call without a word: the effort still counts.
	req = base()
	req.ToolChoice = &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, FunctionName: "f"}
	if out, w := encodes(t, target("claude-opus-4-8"), req); w.Think.Type != "" || w.Output.Effort != "medium" || len(out.dropped) > 0 {
		t.Errorf("%v %s", out.dropped, out.body)
	}
}

func TestSampling(t *testing.T) {
	for _, c := range []struct {
		model       string
		temperature float64
		topP        *float64
		want        string
		dropped     []string
	}{
		{"claude-opus-5-5", 1, new(1.0), "", nil},
		{"claude-opus-5-5", 0, new(0.5), "", []string{"temperature", "top_p"}},
		{"claude-haiku-4-5-20251001", 1.5, nil, `"temperature":1`, nil},
		{"claude-haiku-4-5-20251001", 0, new(0.5), `"temperature":0`, []string{"top_p"}},
		{"claude-3-5-haiku-latest", 0, new(0.0), `"temperature":0,"top_p":0`, nil},
	} {
		out, _ := encodes(t, target(c.model), &request{Messages: []*ktmsv1.Message{say(user, "u")}, Temperature: &c.temperature, TopP: c.topP})
		if !slices.Equal(out.dropped, c.dropped) || !strings.Contains(string(out.body), c.want) || c.want == "" && strings.Contains(string(out.body), "temperature") {
			t.Errorf("%+v: %v %s", c, out.dropped, out.body)
		}
	}
	out, _ := encodes(t, target("claude-opus-5-5"), &request{Messages: []*ktmsv1.Message{say(user, "u")}, Stop: []string{"\n", "END"}, ServiceTier: "priority"})
	if !slices.Equal(out.dropped, []string{"stop", "service_tier"}) || !strings.Contains(string(out.body), `"stop_sequences":["END"]`) {
		t.Errorf("%v %s", out.dropped, out.body)
	}
}

func TestExtras(t *testing.T) {
	out, _ := encodes(t, target("claude-opus-5-5"), &request{
		Messages: []*ktmsv1.Message{
			{Role: user, Text: "u", ExtraJson: `{"weight":1,"nothing":null}`},
			{Role: assistant, ToolCalls: []*ktmsv1.ToolCall{{Id: "a", Name: "f", ExtraJson: `{"index":0}`}}},
			{Role: toolRole, ToolCallId: "a", Text: "r"},
		},
		Tools:     []*ktmsv1.Tool{{Name: "f", ExtraJson: `{"input_examples":[{"a":1.0}],"cache":1}`}, {Name: "g", ExtraJson: `{"input_examples":null,"cache_control":null}`}},
		ExtraJson: `{"user":"u","modalities":["text"]}`,
	})
	if !slices.Equal(out.dropped, []string{"weight", "index", "cache", "user", "modalities"}) || !strings.Contains(string(out.body), `"input_examples":[{"a":1.0}]`) || strings.Contains(string(out.body), "null") {
		t.Errorf("%v %s", out.dropped, out.body)
	}
}
