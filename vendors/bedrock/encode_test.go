package bedrock

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ai-process/ktms/vendors"
)

// TestEncode holds what goes out to its exact text, where the suite only sees that something arrives.
func TestEncode(t *testing.T) {
	png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\nxxxx"))
	newest, nova := "us.anthropic.claude-opus-5-5", "us.amazon.nova-2-lite-v1:0"
	for name, c := range map[string]struct {
		model, request string
		want           []string // in the body
		dropped        []string
	}{
		"numbers stay short": {testClaude, hello + `temperature: 0.7 max_output_tokens: 5 stop: ["END", " "]`,
			[]string{`"inferenceConfig":{"maxTokens":5,"stopSequences":["END"],"temperature":0.7}`}, []string{"stop"}},
		"one sampler":         {testClaude, hello + `temperature: 0 top_p: 0`, []string{`"inferenceConfig":{"temperature":0}`}, []string{"top_p"}},
		"too warm":            {testClaude, hello + `temperature: 1.5`, []string{`"temperature":1}`}, nil},
		"fixed samplers":      {newest, hello + `temperature: 1 top_p: 0.99 top_k: 3`, nil, []string{"top_k"}},
		"top_k of Claude":     {testClaude, hello + `top_k: 0`, []string{`"additionalModelRequestFields":{"top_k":0}`}, nil},
		"top_k of Nova":       {nova, hello + `top_k: 9`, []string{`"additionalModelRequestFields":{"inferenceConfig":{"topK":9}}`}, nil},
		"effort":              {newest, hello + `reasoning_effort: "xhigh"`, []string{`"outputConfig":{"effort":"xhigh"}`}, nil},
		"minimal effort":      {testClaude, hello + `reasoning_effort: "minimal"`, []string{`"effort":"low"`}, nil},
		"effort of Nova":      {nova, hello + `reasoning_effort: "low"`, nil, []string{"reasoning_effort"}},
		"a caller's thinking": {testClaude, hello + `extra_json: '{"thinking":{"type":"adaptive"},"other":1}'`, []string{`{"thinking":{"type":"adaptive"}}`}, []string{"other"}},
		"a guardrail": {testClaude, hello + `extra_json: '{"guardrailConfig":{"guardrailIdentifier":"g","guardrailVersion":"1","streamProcessingMode":"async"}}'`,
			[]string{`"guardrailConfig":{"guardrailIdentifier":"g","guardrailVersion":"1"}`}, nil},
		"tier":                  {testClaude, hello + `service_tier: "scale"`, nil, []string{"service_tier"}},
		"only instructions":     {testClaude, `base_system_instruction: "b" request_instruction: "r"`, []string{`"messages":[{"content":[{"text":"r"}],"role":"user"}],"system":[{"text":"b"}]`}, nil},
		"order of instructions": {testClaude, `base_system_instruction: "b" request_instruction: "r" messages { role: MESSAGE_ROLE_SYSTEM text: "s" } ` + hello, []string{`"system":[{"text":"b"},{"text":"r"},{"text":"s"}]`}, nil},
		"a later instruction":   {testClaude, hello + `messages { role: MESSAGE_ROLE_DEVELOPER text: "s" }`, []string{`[{"text":"hello"},{"text":"<system>\ns\n</system>"}]`}, nil},
		"JSON":                  {testClaude, hello + `json_object: true`, []string{anyObject}, nil},
		"cache points": {testClaude, `messages { role: MESSAGE_ROLE_SYSTEM parts { text: "s" extra_json: '{"cache_control":{"type":"ephemeral","ttl":"1h"}}' } }
			messages { role: MESSAGE_ROLE_USER parts { text: "a" extra_json: '{"cache_control":{"type":"ephemeral"}}' } parts { text: "b" } }`,
			[]string{`[{"text":"s"},{"cachePoint":{"ttl":"1h","type":"default"}}]`, `[{"text":"a"},{"cachePoint":{"type":"default"}},{"text":"b"}]`}, nil},
		"a cache point that is none": {testClaude, `messages { role: MESSAGE_ROLE_USER text: "a" extra_json: '{"cache_control":{"type":"ephemeral","ttl":"2h"}}' }`, nil, []string{"cache_control"}},
		"a data: URL":                {testClaude, `messages { role: MESSAGE_ROLE_USER parts { image { url: "data:image/png;base64,` + png + `" detail: "low" } } }`, []string{`{"image":{"format":"png","source":{"bytes":"` + png + `"}}}`}, []string{"image_url.detail"}},
		"an image without a type":    {testClaude, `messages { role: MESSAGE_ROLE_USER parts { image { data: "\x89PNG\r\n\x1a\nxxxx" } } }`, []string{`"format":"png"`}, nil},
		"names of documents": {testClaude, `messages { role: MESSAGE_ROLE_USER parts { document { data: "%PDF-1" filename: "a/ü report__v1.pdf" } } parts { document { data: "x" mime_type: "text/plain" filename: "a/ü report  v1.md" } } parts { document { data: "%PDF-1" } } }`,
			[]string{`"format":"pdf","name":"a report v1"`, `"format":"md","name":"a report v1 2"`, `"name":"document"`, `{"text":"(empty)"}`}, nil},
		"sound for Nova": {nova, `messages { role: MESSAGE_ROLE_USER parts { audio { data: "RIFFxxxxWAVExxxx" } } }`, []string{`"format":"wav"`}, nil},
		"arguments": {testClaude, hello + `messages { role: MESSAGE_ROLE_ASSISTANT tool_calls { id: "c" name: "f" arguments: '{"z":1.50, "a":9007199254740993}' } } messages { role: MESSAGE_ROLE_TOOL tool_call_id: "c" }`,
			[]string{`"input":{"z":1.50, "a":9007199254740993}`, `"toolResult":{"content":[{"text":"(empty)"}],"toolUseId":"c"}`, `"toolConfig":{"tools":[{"toolSpec":{"inputSchema":{"json":` + openSchema + `},"name":"f"}}]}`}, nil},
		"an id twice": {testClaude, hello + strings.Repeat(`messages { role: MESSAGE_ROLE_ASSISTANT tool_calls { id: "c" name: "f" } } messages { role: MESSAGE_ROLE_TOOL tool_call_id: "c" text: "r" } `, 2),
			[]string{`"toolUseId":"c"`, `"toolUseId":"call_`}, nil},
		"none with a history": {testClaude, hello + `messages { role: MESSAGE_ROLE_ASSISTANT tool_calls { id: "c" name: "f" } } messages { role: MESSAGE_ROLE_TOOL tool_call_id: "c" text: "r" } tools { name: "g" } tool_choice { mode: TOOL_CHOICE_MODE_NONE }`,
			[]string{`"name":"g"`, noCalls}, nil},
		"forced":           {testClaude, hello + `tools { name: "g" } tool_choice { mode: TOOL_CHOICE_MODE_REQUIRED }`, []string{`"toolChoice":{"any":{}}`}, nil},
		"not to be forced": {newest, hello + `tools { name: "g" } tool_choice { mode: TOOL_CHOICE_MODE_FUNCTION function_name: "g" }`, []string{`"system":[{"text":"Call the tool g now."}]`}, nil},
		"a strict map":     {testClaude, hello + `tools { name: "g" strict: true parameters_json: '{"type":"object","additionalProperties":{"type":"string"}}' }`, []string{`"json":{"type":"object","additionalProperties":{"type":"string"}}`}, []string{"tools.strict"}},
		"a keyword moves":  {testClaude, hello + `response_schema_json: '{"type":"object","properties":{"n":{"type":"integer","maximum":3}},"required":["n"]}'`, []string{`\"additionalProperties\":false`}, []string{"response_format.maximum"}},
	} {
		t.Run(name, func(t *testing.T) {
			body, head, err := sent(t, target(c.model), c.request)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(body, want) {
					t.Errorf("no %s in\n%s", want, body)
				}
			}
			if !slices.Equal(head.Dropped, c.dropped) {
				t.Errorf("dropped %v, want %v", head.Dropped, c.dropped)
			}
			if c.want == nil && (strings.Contains(body, "inferenceConfig") || strings.Contains(body, "outputConfig")) {
				t.Error(body)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	call := `messages { role: MESSAGE_ROLE_ASSISTANT tool_calls { id: "c-77" name: "f" } } `
	for name, c := range map[string]struct {
		request string
		kind    vendors.Kind
		says    string
	}{
		"a picture elsewhere":    {`messages { role: MESSAGE_ROLE_USER parts { image { url: "https://x.example/a.png" } } }`, vendors.Unsupported, "send the bytes"},
		"a document elsewhere":   {`messages { role: MESSAGE_ROLE_USER parts { document { url: "https://x.example/a.pdf" } } }`, vendors.Unsupported, "send the bytes"},
		"another kind of image":  {`messages { role: MESSAGE_ROLE_USER parts { image { data: "BMxxxx" mime_type: "image/bmp" } } }`, vendors.Unsupported, "png"},
		"a picture by Claude":    {hello + `messages { role: MESSAGE_ROLE_ASSISTANT parts { image { data: "\x89PNG\r\n\x1a\n" } } }`, vendors.Unsupported, "role"},
		"arguments that are not": {hello + `messages { role: MESSAGE_ROLE_ASSISTANT tool_calls { id: "c" name: "f" arguments: "[1]" } }`, vendors.Unsupported, "not a JSON object"},
		"a call without result":  {hello + call + `messages { role: MESSAGE_ROLE_USER text: "so?" }`, vendors.Invalid, "c-77"},
		"a last call":            {hello + call, vendors.Invalid, "c-77"},
		"a result twice":         {hello + call + strings.Repeat(`messages { role: MESSAGE_ROLE_TOOL tool_call_id: "c-77" } `, 2), vendors.Invalid, "c-77"},
		"a custom call":          {hello + `messages { role: MESSAGE_ROLE_ASSISTANT tool_calls { id: "c" name: "f" type: "custom" } }`, vendors.Unsupported, ""},
		"another guardrail":      {hello + `extra_json: '{"guardrailConfig":{"x":1}}'`, vendors.Invalid, "guardrailIdentifier"},
		"a choice of nothing":    {hello + `tool_choice { mode: TOOL_CHOICE_MODE_REQUIRED }`, vendors.Invalid, "tool_choice"},
		"an empty part":          {`messages { role: MESSAGE_ROLE_USER parts {} }`, vendors.Invalid, "is empty"},
		"strict":                 {hello + `seed: 0 strict_params: true`, vendors.Unsupported, "seed"},
		"a schema that is none":  {hello + `response_schema_json: "[]"`, vendors.Invalid, "object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := sent(t, target(testClaude), c.request)
			var e *vendors.Error
			if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Message, c.says) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.says)
			}
		})
	}
}

// TestThinking: the same request thinks as it does on Claude's own API, and a capability that others read says nothing.
func TestThinking(t *testing.T) {
	forced := ` tools { name: "g" } tool_choice { mode: TOOL_CHOICE_MODE_REQUIRED }`
	for _, c := range []struct {
		model, request string
		want, not      []string
		dropped        []string
	}{
		{"claude-opus-5-5", ``, nil, []string{"thinking", "effort"}, nil},
		{"claude-opus-5-5", `reasoning_effort: "none"`, nil, []string{"thinking"}, []string{"reasoning_effort"}},
		{"claude-haiku-5-5", `reasoning_effort: "none"`, []string{`"thinking":{"type":"disabled"}`}, nil, nil},
		{"claude-opus-4-6-v1", `reasoning_effort: "none"`, []string{`"thinking":{"type":"disabled"}`}, nil, nil},
		{"claude-3-5-sonnet-20240620-v1:0", `reasoning_effort: "none" strict_params: true`, nil, []string{"thinking"}, nil},
		{"claude-opus-4-6-v1", `reasoning_effort: "high"`, []string{`"effort":"high"`, `"thinking":{"type":"adaptive"}`}, nil, nil},
		{"claude-opus-4-6-v1", `reasoning_effort: "high" temperature: 0.2 top_p: 0.5 top_k: 5`, []string{"adaptive"}, []string{"temperature", "topP", "top_k"}, []string{"temperature", "top_p", "top_k"}},
		{"claude-opus-4-6-v1", `reasoning_effort: "high"` + forced, []string{`"any":{}`, `"effort":"high"`}, []string{"adaptive"}, nil},
		{"claude-opus-4-6-v1", `reasoning_effort: "ultra"`, nil, []string{"ultra"}, []string{"reasoning_effort"}},
		{"claude-opus-4-6-v1", `extra_json: '{"thinking":{"type":"adaptive"}}' temperature: 0.2` + forced, []string{"adaptive", "Call at least one"}, []string{"temperature", `"any"`}, []string{"temperature"}},
		{"claude-opus-4-6-v1", `extra_json: '{"thinking":{"type":"disabled"}}' temperature: 0.2` + forced, []string{"disabled", "temperature", `"any"`}, nil, nil},
		{"claude-opus-5-v1", forced, []string{`"any":{}`, `"thinking":{"type":"disabled"}`}, nil, nil},
		{"claude-sonnet-4-5-20250929-v1:0", `reasoning_effort: "low"`, []string{`"thinking":{"type":"enabled","budget_tokens":2048}`, `"maxTokens":6144`}, []string{"effort"}, nil},
		{"claude-sonnet-4-5-20250929-v1:0", `reasoning_effort: "low" max_output_tokens: 100`, []string{`"maxTokens":100`}, []string{"thinking"}, []string{"reasoning_effort"}},
		{"claude-sonnet-4-5-20250929-v1:0", `temperature: 1 top_p: 1 strict_params: true`, []string{`"temperature":1`}, []string{"topP"}, nil},
		{"claude-mythos-preview", `temperature: 0.2 top_k: 3` + forced, []string{"Call at least one"}, []string{"temperature", "top_k", `"any"`}, []string{"temperature", "top_k"}},
	} {
		to := target("us.anthropic." + c.model)
		to.Capabilities = []string{"no_thinking"}
		body, head, err := sent(t, to, hello+c.request)
		if err != nil || !slices.Equal(head.Dropped, c.dropped) {
			t.Errorf("%s %s: %v %v", c.model, c.request, head.Dropped, err)
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s %s: no %s in\n%s", c.model, c.request, want, body)
			}
		}
		for _, not := range c.not {
			if strings.Contains(body, not) {
				t.Errorf("%s %s: %s in\n%s", c.model, c.request, not, body)
			}
		}
	}
}

// TestEnforced: only the whole schema counts, and only where the vendor has it.
func TestEnforced(t *testing.T) {
	closed := `response_schema_json: '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'`
	for request, want := range map[string]bool{
		closed: true, `json_object: true`: false,
		`response_schema_json: '{"type":"object"}'`:                                           false,
		`response_schema_json: '{"type":"object","properties":{"n":{"minimum":1}}}'`:          false,
		`response_schema_json: '{"type":"object","properties":{"n":{"type":"object"}}}'`:      false,
		`response_schema_json: '{"type":"array","items":{"type":"string","maxLength":3}}'`:    false,
		`response_schema_json: '{"type":"array","items":{"type":"string","format":"email"}}'`: true,
	} {
		if _, head, err := sent(t, target(testClaude), hello+request); err != nil || head.Enforced != want {
			t.Errorf("%s: %v %v", request, head.Enforced, err)
		}
	}
	if body, head, err := sent(t, target("anthropic.claude-3-5-sonnet-20240620-v1:0"), hello+closed); err != nil || head.Enforced || !strings.Contains(body, followSchema) {
		t.Errorf("%v %v %s", head, err, body)
	}
}

func TestModelOf(t *testing.T) {
	for id, want := range map[string]struct {
		claude, nova bool
		since        int
	}{
		"":                             {true, false, 501},
		"anthropic.claude-opus-4-6-v1": {true, false, 406},
		"us.anthropic.claude-sonnet-4-20250514-v1:0":                       {true, false, 400},
		"anthropic.claude-3-7-sonnet-20250219-v1:0":                        {true, false, 307},
		"anthropic.claude-v2:1":                                            {true, false, 0},
		"global.anthropic.claude-opus-5":                                   {true, false, 500},
		"anthropic.claude-mythos-preview":                                  {true, false, 501},
		"arn:aws:bedrock:x:1:inference-profile/us.amazon.nova-2-lite-v1:0": {false, true, 0},
		"arn:aws:bedrock:x:1:application-inference-profile/abc":            {false, false, 0},
	} {
		if got := modelOf(id); got.claude != want.claude || got.nova != want.nova || got.gen.Since != want.since {
			t.Errorf("%s: %+v", id, got)
		}
	}
}
