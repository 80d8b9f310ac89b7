package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func user(text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: text}
}

func parts(all ...*ktmsv1.ContentPart) *ktmsv1.Message {
	return &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Parts: all}
}

func encodeFor(t *testing.T, vendor string, req *ktmsv1.GenerateTextRequest, stream bool) *encoded {
	t.Helper()
	e, err := encode(vendors.Target{Vendor: vendor, Model: "m"}, req, stream)
	if err != nil {
		t.Fatalf("%s: %v", vendor, err)
	}
	if !json.Valid(e.body) {
		t.Fatalf("%s: not JSON: %s", vendor, e.body)
	}
	return e
}

// everything sets every field that travels to a vendor.
func everything() *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{
		Effort: ktmsv1.Effort_EFFORT_HIGH, Attributes: map[string]string{"user_id": "u"}, ActionId: "a", ModelOverride: "other",
		Placement: "cloud_only", AutoRoute: true, EffortSpecified: true, EnableCache: true,
		BaseSystemInstruction: "base", RequestInstruction: "instruction", MaxOutputTokens: 100,
		Temperature: new(0.0), TopP: new(0.0), TopK: new(int32(0)), Stop: []string{"a", "b"}, Seed: new(int64(9007199254740993)),
		PresencePenalty: new(-0.5), FrequencyPenalty: new(0.0), LogitBias: map[string]float64{"50256": -100, "7": 0.5},
		Logprobs: new(false), TopLogprobs: new(int32(0)), N: new(int32(2)), ParallelToolCalls: new(false), Verbosity: "low",
		ServiceTier: "flex", ReasoningEffort: "minimal", PromptCacheKey: "bucket",
		ResponseSchemaJson: `{"type":"object","properties":{"z":{"maximum":9007199254740993},"a":{}}}`,
		ResponseSchemaName: "shape", ResponseSchemaDescription: "what it is",
		Tools: []*ktmsv1.Tool{
			{Name: "f", Description: "does f", ParametersJson: `{"b":1,"a":2}`, Strict: new(false), ExtraJson: `{"x":1}`},
			{Name: "ignored", RawJson: `{"type":"custom","custom":{"name":"c"}}`},
		},
		ToolChoice: &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, FunctionName: "f"},
		ExtraJson:  `{"x_new":{"b":1,"a":12345678901234567890},"store":false,"stream_options":{"include_obfuscation":false,"include_usage":false}}`,
		Messages: []*ktmsv1.Message{
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM, Text: "s"},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER, Text: "d", Name: "dev"},
			parts(
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Text{Text: "t"}, ExtraJson: `{"prompt_cache_breakpoint":{"mode":"explicit"}}`},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "https://e.example/a?b=c&d"}, Detail: "high"}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Data{Data: []byte("\x89PNG\r\n\x1a\n")}}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Data{Data: []byte{1}}, MimeType: "image/webp"}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Audio{Audio: &ktmsv1.AudioPart{Data: []byte{1, 2}, Format: "mp3"}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: []byte("%PDF-1.7")}}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_FileId{FileId: "file-1"}}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{Url: "data:text/plain;base64,YQ=="}, Filename: "a.txt"}}},
				&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_RawJson{RawJson: `{"type":"video_url","video_url":{"b":1,"a":2}}`}},
			),
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, Reasoning: "because", Opaque: "not for this dialect", ToolCalls: []*ktmsv1.ToolCall{
				{Id: "call_1", Name: "f", Arguments: `{"a": 1}`, ExtraJson: `{"extra_content":{"google":{"thought_signature":"s"}}}`},
				{Id: "call_2", Name: "c", Arguments: "free text", Type: "custom"},
			}},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "call_1", Text: ""},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "call_2", Text: "r"},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, Refusal: "no"},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, Parts: []*ktmsv1.ContentPart{{Part: &ktmsv1.ContentPart_Refusal{Refusal: "no"}}}},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, Text: "", ExtraJson: `{"audio":{"id":"a"}}`},
			user(""),
		},
	}
}

const (
	allMessages = `[{"role":"system","content":"base\n\ninstruction"},{"role":"system","content":"s"},{"role":"developer","content":"d","name":"dev"},` +
		`{"role":"user","content":[{"type":"text","text":"t","prompt_cache_breakpoint":{"mode":"explicit"}},` +
		`{"type":"image_url","image_url":{"url":"https://e.example/a?b=c&d","detail":"high"}},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},` +
		`{"type":"image_url","image_url":{"url":"data:image/webp;base64,AQ=="}},` +
		`{"type":"input_audio","input_audio":{"data":"AQI=","format":"mp3"}},` +
		`{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0xLjc=","filename":"document.pdf"}},` +
		`{"type":"file","file":{"file_id":"file-1"}},` +
		`{"type":"file","file":{"file_data":"data:text/plain;base64,YQ==","filename":"a.txt"}},` +
		`{"type":"video_url","video_url":{"b":1,"a":2}}]},` +
		`{"role":"assistant","content":null,REASONING"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"},"extra_content":{"google":{"thought_signature":"s"}}},` +
		`{"id":"call_2","type":"custom","custom":{"name":"c","input":"free text"}}]},` +
		`{"role":"tool","content":"","tool_call_id":"call_1"},{"role":"tool","content":"r","tool_call_id":"call_2"},` +
		`{"role":"assistant","content":null,"refusal":"no"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},` +
		`{"role":"assistant","content":"","audio":{"id":"a"}},{"role":"user","content":""}]`
	schemaAndTools = `"response_format":{"type":"json_schema","json_schema":{"name":"shape","description":"what it is","schema":{"type":"object","properties":{"z":{"maximum":9007199254740993},"a":{}}},"strict":false}},` +
		`"tools":[{"type":"function","function":{"name":"f","description":"does f","parameters":{"b":1,"a":2},"strict":false},"x":1},{"type":"custom","custom":{"name":"c"}}],` +
		`"tool_choice":{"type":"function","function":{"name":"f"}},"x_new":{"b":1,"a":12345678901234567890},"store":false}`
)

func TestEverythingForOpenAI(t *testing.T) {
	want := `{"model":"m","messages":` + strings.Replace(allMessages, "REASONING", "", 1) + `,"max_completion_tokens":100,"temperature":0,"top_p":0,` +
		`"presence_penalty":-0.5,"frequency_penalty":0,"stop":["a","b"],"seed":9007199254740993,"logit_bias":{"50256":-100,"7":0.5},"logprobs":false,"top_logprobs":0,` +
		`"n":2,"parallel_tool_calls":false,"verbosity":"low","service_tier":"flex","reasoning_effort":"minimal","prompt_cache_key":"bucket","stream":true,` +
		`"stream_options":{"include_usage":true,"include_obfuscation":false},` + schemaAndTools
	for _, vendor := range []string{vendors.OpenAI, vendors.Azure} {
		got := encodeFor(t, vendor, everything(), true)
		if string(got.body) != want {
			t.Errorf("%s got\n%s\nwant\n%s", vendor, got.body, want)
		}
		if !slices.Equal(got.dropped, []string{"reasoning_content", "top_k"}) {
			t.Errorf("%s dropped %v", vendor, got.dropped)
		}
	}
}

func TestEverythingForCompatibleServers(t *testing.T) {
	want := `{"model":"m","messages":` + strings.NewReplacer("REASONING", `"reasoning_content":"because","reasoning":"because",`, `"role":"developer"`, `"role":"system"`).Replace(allMessages) + `,"max_tokens":100,"temperature":0,"top_p":0,"top_k":0,` +
		`"presence_penalty":-0.5,"frequency_penalty":0,"stop":["a","b"],"seed":9007199254740993,"logit_bias":{"50256":-100,"7":0.5},"logprobs":false,"top_logprobs":0,` +
		`"n":2,"parallel_tool_calls":false,"verbosity":"low","service_tier":"flex","reasoning_effort":"minimal","prompt_cache_key":"bucket",` + schemaAndTools
	for _, vendor := range []string{vendors.Ollama, vendors.Local, "anything"} {
		got := encodeFor(t, vendor, everything(), false)
		if string(got.body) != want {
			t.Errorf("%s got\n%s\nwant\n%s", vendor, got.body, want)
		}
		if !slices.Equal(got.dropped, []string{"stream_options"}) {
			t.Errorf("%s dropped %v", vendor, got.dropped)
		}
		if want := []string{"top_k", "logit_bias", "n", "parallel_tool_calls", "verbosity", "service_tier", "prompt_cache_key", "tool_choice"}; !slices.Equal(got.unheard, want) {
			t.Errorf("%s: Ollama ignores %v", vendor, got.unheard)
		}
	}
}

func TestDroppedPerVendor(t *testing.T) {
	for vendor, c := range map[string]struct {
		dropped []string
		present []string
		absent  []string
	}{
		vendors.DeepSeek: {
			[]string{"top_k", "seed", "logit_bias", "n", "parallel_tool_calls", "verbosity", "service_tier", "prompt_cache_key"},
			[]string{`"max_tokens":100`, `"reasoning_content":"because"`, `"response_format":{"type":"json_object"}`, `"temperature":0`, `"reasoning_effort":"minimal"`, `"x_new"`},
			[]string{`"seed"`, `"n"`, `"max_completion_tokens"`},
		},
		vendors.Groq: {
			[]string{"top_k", "presence_penalty", "logit_bias", "n", "verbosity", "prompt_cache_key"},
			[]string{`"max_completion_tokens":100`, `"reasoning":"because"`, `"seed":9007199254740993`, `"service_tier":"flex"`},
			[]string{`"logprobs"`, `"top_logprobs"`, `"reasoning_content"`, `"n"`},
		},
		vendors.Mistral: {
			[]string{"reasoning_content", "audio", "top_k", "logit_bias", "verbosity", "x_new", "store", "messages.name", "prompt_cache_breakpoint", "extra_content", "x"},
			[]string{`"max_tokens":100`, `{"role":"assistant","content":"no"}`, `[{"type":"text","text":"no"}]`, `"random_seed":9007199254740993`, `"n":2`, `"role":"system","content":"d"`, `"stream":true`},
			[]string{`"seed"`, `"developer"`, `"stream_options"`, `"store"`, `call_1`, `call_2`},
		},
	} {
		got := encodeFor(t, vendor, everything(), true)
		if vendor == vendors.Mistral {
			c.dropped = append(c.dropped, "stream_options")
		}
		slices.Sort(c.dropped)
		slices.Sort(got.dropped)
		if !slices.Equal(got.dropped, c.dropped) {
			t.Errorf("%s dropped %v\nwant %v", vendor, got.dropped, c.dropped)
		}
		for _, member := range c.present {
			if !strings.Contains(string(got.body), member) {
				t.Errorf("%s: no %s in %s", vendor, member, got.body)
			}
		}
		for _, member := range c.absent {
			if strings.Contains(string(got.body), member) {
				t.Errorf("%s: %s in %s", vendor, member, got.body)
			}
		}
	}
}

// Mistral has a seed under another name, and refuses this one.
func TestNoForeignSeedForMistral(t *testing.T) {
	req := &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, ExtraJson: `{"seed":7}`}
	if got := encodeFor(t, vendors.Mistral, req, false); !slices.Equal(got.dropped, []string{"seed"}) || strings.Contains(string(got.body), "seed") {
		t.Errorf("%v %s", got.dropped, got.body)
	}
}

func TestNothingIsDroppedForWhatHappensAnyway(t *testing.T) {
	req := &ktmsv1.GenerateTextRequest{
		Messages: []*ktmsv1.Message{user("x")}, N: new(int32(1)), Logprobs: new(false), ParallelToolCalls: new(true), PresencePenalty: new(0.0),
		ToolChoice: &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO},
	}
	for _, vendor := range []string{vendors.OpenAI, vendors.DeepSeek, vendors.Groq, vendors.Mistral, vendors.Ollama} {
		if got := encodeFor(t, vendor, req, false); len(got.dropped)+len(got.unheard) > 0 {
			t.Errorf("%s dropped %v %v", vendor, got.dropped, got.unheard)
		}
	}
}

func TestStrictRefusesToDrop(t *testing.T) {
	req := &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, TopK: new(int32(3)), EnableGoogleSearch: true, StrictParams: true}
	_, err := encode(vendors.Target{Vendor: vendors.OpenAI, Model: "m"}, req, false)
	if err == nil || err.Kind != vendors.Unsupported || err.Param != "top_k" {
		t.Errorf("%v", err)
	}
	req.TopK = nil
	if _, err = encode(vendors.Target{Vendor: vendors.OpenAI, Model: "m"}, req, false); err == nil || err.Param != "enable_google_search" {
		t.Errorf("%v", err)
	}
	req.EnableGoogleSearch = false
	encodeFor(t, vendors.OpenAI, req, false)
}

func TestThinkingIsSwitchedOff(t *testing.T) {
	req := func(effort, extra string) *ktmsv1.GenerateTextRequest {
		return &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, ReasoningEffort: effort, ExtraJson: extra}
	}
	const tail = `{"model":"m","messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		vendor, effort, extra string
		declares              bool
		want                  string
	}{
		{vendors.DeepSeek, "", "", true, `,"thinking":{"type":"disabled"}}`},
		{vendors.DeepSeek, "", "", false, `}`},
		{vendors.DeepSeek, "none", "", false, `,"thinking":{"type":"disabled"}}`},
		{vendors.DeepSeek, "high", "", true, `,"reasoning_effort":"high"}`},
		{vendors.DeepSeek, "", `{"thinking":{"type":"enabled"}}`, true, `,"thinking":{"type":"enabled"}}`},
		{vendors.Ollama, "", "", true, `,"reasoning_effort":"none"}`},
		{vendors.Ollama, "low", "", true, `,"reasoning_effort":"low"}`},
		{vendors.Ollama, "", "", false, `}`},
		{vendors.Local, "", "", true, `}`},
		{vendors.OpenAI, "", "", true, `}`},
		{vendors.OpenAI, "xhigh", "", false, `,"reasoning_effort":"xhigh"}`},
	} {
		target := vendors.Target{Vendor: c.vendor, Model: "m"}
		if c.declares {
			target.Capabilities = []string{"vision", "no_thinking"}
		}
		got, err := encode(target, req(c.effort, c.extra), false)
		if err != nil || string(got.body) != tail+c.want {
			t.Errorf("%+v: %v %s", c, err, got.body)
		}
	}
}

func TestExtraMembersCannotOverride(t *testing.T) {
	req := &ktmsv1.GenerateTextRequest{
		Messages:    []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "x", ExtraJson: `{"Content":"y","role":"system","k":1}`}},
		Temperature: new(0.5), MaxOutputTokens: 5,
		ExtraJson: `{"model":"other","Model":"other","MESSAGES":[],"stream":true,"n":9,"max_tokens":1,"max_completion_tokens":1,"Stream_Options":{},"temperature":2,"tEmperature":2,"top_p":0.1,"stop":[],"seed":"s","model\u0000":1,"ok":null}`,
	}
	got := encodeFor(t, vendors.Ollama, req, false)
	const want = `{"model":"m","messages":[{"role":"user","content":"x","k":1}],"max_tokens":5,"temperature":0.5,"top_p":0.1,"stop":[],"seed":"s","model\u0000":1,"ok":null}`
	if string(got.body) != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
	if len(got.dropped) != 12 || !slices.Contains(got.dropped, "Model") || !slices.Contains(got.dropped, "Content") {
		t.Errorf("dropped %v", got.dropped)
	}
}

// What an answer costs is decided by fields that are checked; extra_json must not decide it past them.
func TestExtraMembersCannotChangeThePrice(t *testing.T) {
	for _, vendor := range []string{vendors.OpenAI, vendors.Azure, vendors.Groq, vendors.Mistral, vendors.DeepSeek, vendors.Ollama} {
		for _, tier := range []string{"", "flex"} {
			got := encodeFor(t, vendor, &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, ServiceTier: tier,
				ExtraJson: `{"service_tier":"priority","Service_Tier":"priority"}`}, false)
			if strings.Contains(string(got.body), "priority") || !slices.Contains(got.dropped, "service_tier") {
				t.Errorf("%s: dropped %v: %s", vendor, got.dropped, got.body)
			}
		}
		got := encodeFor(t, vendor, &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, ReasoningEffort: "none",
			ExtraJson: `{"reasoning_effort":"max"}`}, false)
		if strings.Contains(string(got.body), "max") || !slices.Contains(got.dropped, "reasoning_effort") {
			t.Errorf("%s: dropped %v: %s", vendor, got.dropped, got.body)
		}
	}
}

// Members may have the names of what a message or a part can hold.
func TestExtraMembersWithNamesOfOtherPlaces(t *testing.T) {
	const extra = `{"embedding":1,"ktms_opaque":2,"reasoning_content":3}`
	got := encodeFor(t, vendors.OpenAI, &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, ExtraJson: extra}, false)
	if len(got.dropped) > 0 || !strings.Contains(string(got.body), extra[1:]) {
		t.Errorf("dropped %v: %s", got.dropped, got.body)
	}
}

func TestInvalidRequests(t *testing.T) {
	with := func(change func(*ktmsv1.GenerateTextRequest)) *ktmsv1.GenerateTextRequest {
		r := &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}}
		change(r)
		return r
	}
	part := func(p *ktmsv1.ContentPart) *ktmsv1.GenerateTextRequest {
		return with(func(r *ktmsv1.GenerateTextRequest) { r.Messages = append(r.Messages, parts(p)) })
	}
	for param, req := range map[string]*ktmsv1.GenerateTextRequest{
		"extra_json":             with(func(r *ktmsv1.GenerateTextRequest) { r.ExtraJson = `{"a":1},"model":"x"` }),
		"response_schema":        with(func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchemaJson = `{}},"n":5,"x":{{}` }),
		"tools[0].raw_json":      with(func(r *ktmsv1.GenerateTextRequest) { r.Tools = []*ktmsv1.Tool{{RawJson: `{"a":`}} }),
		"tools[0].extra_json":    with(func(r *ktmsv1.GenerateTextRequest) { r.Tools = []*ktmsv1.Tool{{Name: "f", ExtraJson: `[]`}} }),
		"tool_choice.raw_json":   with(func(r *ktmsv1.GenerateTextRequest) { r.ToolChoice = &ktmsv1.ToolChoice{RawJson: `x`} }),
		"messages[0].extra_json": with(func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].ExtraJson = `7` }),
		"messages[0].role":       with(func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].Role = 0 }),
		"messages[0].tool_calls[0].extra_json": with(func(r *ktmsv1.GenerateTextRequest) {
			r.Messages[0].ToolCalls = []*ktmsv1.ToolCall{{ExtraJson: `{`}}
		}),
		"tools[0].parameters_json": with(func(r *ktmsv1.GenerateTextRequest) {
			r.Tools = []*ktmsv1.Tool{{Name: "f", ParametersJson: `{} {}`}}
		}),
		"messages[1].parts[0].raw_json":     part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_RawJson{RawJson: `"text"`}}),
		"messages[1].parts[0].extra_json":   part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Text{}, ExtraJson: `{"a"}`}),
		"messages[1].parts[0]":              part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Embedding{Embedding: &ktmsv1.EmbeddingPart{}}}),
		"messages[1].parts[0].document.url": part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{Url: "https://e.example/a.pdf"}}}}),
	} {
		_, err := encode(vendors.Target{Vendor: vendors.OpenAI, Model: "m"}, req, false)
		kind := vendors.Invalid
		if param == "messages[1].parts[0]" || strings.HasSuffix(param, "document.url") {
			kind = vendors.Unsupported // another vendor may
		}
		if err == nil || err.Kind != kind || err.Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
}

func TestToolIDs(t *testing.T) {
	e := &encoder{dialect: dialectOf(vendors.Mistral)}
	if got := e.toolID("D681PevKs"); got != "D681PevKs" {
		t.Error(got)
	}
	one, two := e.toolID("call_abcdefghijkl"), e.toolID("call_abcdefghijkm")
	if !isShortID(one) || !isShortID(two) || one == two || one != e.toolID("call_abcdefghijkl") {
		t.Error(one, two)
	}
	body := string(encodeFor(t, vendors.Mistral, everything(), false).body)
	if strings.Count(body, e.toolID("call_1")) != 2 || strings.Count(body, e.toolID("call_2")) != 2 {
		t.Error("a call and its result have different ids")
	}
}

func TestResponseSchema(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		strict       *bool
		want         string
		wantStrict   string
	}{
		{"the manual's example", `{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"]}`, nil,
			`{"properties":{"summary":{"type":"string"}},"required":["summary"],"type":"object","additionalProperties":false}`, "true"},
		{"an optional property", `{"type":"object","properties":{"a":{"type":"string"}}}`, nil, `{"properties":{"a":{"type":"string"}},"type":"object"}`, "false"},
		{"strict as asked", `{"type":"object","properties":{"a":{"type":"string"}}}`, new(true), `{"properties":{"a":{"type":"string"}},"type":"object"}`, "true"},
		{"loose as asked", `{"type":"string"}`, new(false), `{"type":"string"}`, "false"},
		{"both spellings", `{"type":"object","properties":{},"additional_properties":false}`, nil, `{"additionalProperties":false,"properties":{},"type":"object"}`, "true"},
		{"properties with such names", `{"type":"object","additional_properties":false,"required":["additional_properties","nullable"],"properties":{"additional_properties":{"type":"integer","nullable":true},"nullable":{"type":"boolean"}}}`, nil,
			`{"additionalProperties":false,"properties":{"additional_properties":{"type":["integer","null"]},"nullable":{"type":"boolean"}},"required":["additional_properties","nullable"],"type":"object"}`, "true"},
		{"values are no keywords", `{"enum":[{"nullable":true}],"default":{"additional_properties":1},"const":{"nullable":true}}`, nil,
			`{"const":{"nullable":true},"default":{"additional_properties":1},"enum":[{"nullable":true}]}`, "false"},
		{"nullable", `{"type":"array","items":{"type":["string"],"nullable":true},"nullable":true}`, nil, `{"items":{"type":["string","null"]},"type":["array","null"]}`, "false"},
		{"nullable enum", `{"type":"string","enum":["a"],"nullable":true}`, nil, `{"enum":["a",null],"type":["string","null"]}`, "false"},
		{"nullable reference", `{"anyOf":[{"$ref":"#/$defs/x","nullable":true}],"$defs":{"x":{"type":"integer","nullable":false}}}`, nil,
			`{"$defs":{"x":{"type":"integer"}},"anyOf":[{"anyOf":[{"$ref":"#/$defs/x"},{"type":"null"}]}]}`, "false"},
		{"nullable without a type", `{"nullable":true,"description":"x"}`, nil, `{"description":"x"}`, "false"},
		{"a free object within", `{"type":"array","items":{"type":"object"}}`, nil, `{"items":{"type":"object"},"type":"array"}`, "false"},
		{"open on purpose", `{"type":"object","properties":{},"additionalProperties":{"type":"string"}}`, nil, `{"additionalProperties":{"type":"string"},"properties":{},"type":"object"}`, "false"},
	} {
		schema := &structpb.Struct{}
		if err := schema.UnmarshalJSON([]byte(c.schema)); err != nil {
			t.Fatal(c.name, err)
		}
		before := schema.String()
		got := encodeFor(t, vendors.OpenAI, &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, ResponseSchema: schema, ResponseSchemaStrict: c.strict}, false)
		want := `"response_format":{"type":"json_schema","json_schema":{"name":"response","schema":` + c.want + `,"strict":` + c.wantStrict + `}}}`
		if !strings.HasSuffix(string(got.body), want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got.body, want)
		}
		if schema.String() != before {
			t.Errorf("%s: the request was changed", c.name)
		}
	}
}

func TestTypedToolParameters(t *testing.T) {
	params, err := structpb.NewStruct(map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer", "nullable": true, "maximum": 10}}})
	if err != nil {
		t.Fatal(err)
	}
	got := encodeFor(t, vendors.OpenAI, &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{user("x")}, Tools: []*ktmsv1.Tool{{Name: "f", Parameters: params}},
		ToolChoice: &ktmsv1.ToolChoice{RawJson: `{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`}, JsonObject: true}, false)
	want := `"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"n":{"maximum":10,"type":["integer","null"]}},"type":"object"}}}],` +
		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}}`
	if !strings.HasSuffix(string(got.body), want) {
		t.Errorf("got %s", got.body)
	}
}

func TestEndpoint(t *testing.T) {
	for _, c := range []struct{ vendor, base, want string }{
		{vendors.OpenAI, "", "https://api.openai.com/v1/chat/completions"},
		{vendors.OpenAI, "https://proxy.example", "https://proxy.example/v1/chat/completions"},
		{vendors.OpenAI, "https://proxy.example/openai/v1/", "https://proxy.example/openai/v1/chat/completions"},
		{vendors.OpenAI, "https://proxy.example/x/chat/completions?a=b#f", "https://proxy.example/x/chat/completions?a=b"},
		{vendors.OpenAI, "https://proxy.example/a%2Fb/v1/", "https://proxy.example/a%2Fb/v1/chat/completions"},
		{vendors.DeepSeek, "", "https://api.deepseek.com/chat/completions"},
		{vendors.Groq, "", "https://api.groq.com/openai/v1/chat/completions"},
		{vendors.Mistral, "", "https://api.mistral.ai/v1/chat/completions"},
		{vendors.Ollama, "http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"},
		{vendors.Ollama, "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"},
		{vendors.Azure, "https://r.openai.azure.com/openai/deployments/dep/chat/completions?api-version=2024-10-21", "https://r.openai.azure.com/openai/deployments/my%2Fmodel%201/chat/completions?api-version=2024-10-21"},
		{vendors.Azure, "https://r.openai.azure.com/openai/deployments/dep/embeddings?api-version=2024-10-21", "https://r.openai.azure.com/openai/deployments/my%2Fmodel%201/chat/completions?api-version=2024-10-21"},
		{vendors.Azure, "https://r.openai.azure.com/openai/deployments/dep", "https://r.openai.azure.com/openai/v1/chat/completions"},
		{vendors.Azure, "https://r.openai.azure.com", "https://r.openai.azure.com/openai/v1/chat/completions"},
		{vendors.Azure, "https://r.openai.azure.com/openai/v1/", "https://r.openai.azure.com/openai/v1/chat/completions"},
		{vendors.Azure, "https://r.openai.azure.com/?api-version=preview", "https://r.openai.azure.com/openai/v1/chat/completions?api-version=preview"},
		{vendors.Azure, "https://r.openai.azure.com?api-version=2024-10-21", "https://r.openai.azure.com/openai/deployments/my%2Fmodel%201/chat/completions?api-version=2024-10-21"},
		{vendors.Azure, "https://r.openai.azure.com/openai?api-version=2024-10-21", "https://r.openai.azure.com/openai/deployments/my%2Fmodel%201/chat/completions?api-version=2024-10-21"},
	} {
		got, err := endpoint(vendors.Target{Vendor: c.vendor, Model: "my/model 1", BaseURL: c.base}, dialectOf(c.vendor), chatPath)
		if err != nil || got != c.want {
			t.Errorf("%s %s: %s %v", c.vendor, c.base, got, err)
		}
	}
	for _, c := range []struct{ vendor, base, want string }{
		{vendors.OpenAI, "", "https://api.openai.com/v1/embeddings"},
		{vendors.Ollama, "http://127.0.0.1:11434/v1/chat/completions", "http://127.0.0.1:11434/v1/embeddings"},
		{vendors.Azure, "https://r.openai.azure.com?api-version=2024-10-21", "https://r.openai.azure.com/openai/deployments/m/embeddings?api-version=2024-10-21"},
	} {
		if got, err := endpoint(vendors.Target{Vendor: c.vendor, Model: "m", BaseURL: c.base}, dialectOf(c.vendor), embeddingsPath); err != nil || got != c.want {
			t.Errorf("%s %s: %s %v", c.vendor, c.base, got, err)
		}
	}
	for _, base := range []string{"", "ftp://x", "host:80", "http://", "https://user:hidden@ho st/", "://hidden"} {
		_, err := endpoint(vendors.Target{Vendor: vendors.Azure, BaseURL: base}, dialectOf(vendors.Azure), chatPath)
		if err == nil || err.Kind != vendors.Denied || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", base, err)
		}
	}
}
