package anthropic

import (
	"slices"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func TestToolSchemas(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		strict       bool
		want         string
		isStrict     bool
		dropped      []string
	}{
		{"none", "", false, `{"type":"object","properties":{}}`, false, nil},
		{"none, strict", "", true, `{"type":"object","properties":{},"additionalProperties":false}`, true, nil},
		{"verbatim", `{ "type":"object", "z":1.0, "a":9007199254740993, "additionalProperties": true }`, false, `{ "type":"object", "z":1.0, "a":9007199254740993, "additionalProperties": true }`, false, nil},
		{"without a type", `{ "properties":{}}`, false, `{"type":"object", "properties":{}}`, false, nil},
		{"anything", `{}`, false, `{"type":"object","properties":{}}`, false, nil},
		{"strict", `{"type":"object","properties":{"n":{"type":"integer","minimum":1},"m":{"oneOf":[{"type":"null"},{"const":1}]}}}`, true,
			`{"type":"object","properties":{"n":{"type":"integer","description":"minimum: 1"},"m":{"anyOf":[{"type":"null"},{"const":1}]}},"additionalProperties":false}`, true, []string{"tools.parameters.minimum"}},
		{"strict, but with members of any name", `{"type":"object","properties":{"labels":{"type":"object","additionalProperties":{"type":"string"}}}}`, true,
			`{"type":"object","properties":{"labels":{"type":"object","additionalProperties":{"type":"string"}}}}`, false, []string{"tools.strict"}},
		{"strict, but of any shape", `{"type":"object","properties":{"any":{"type":"object"}}}`, true, `{"type":"object","properties":{"any":{"type":"object"}}}`, false, []string{"tools.strict"}},
	} {
		out, w := encodes(t, target("claude-opus-5-5"), &request{
			Messages: []*ktmsv1.Message{say(user, "u")}, Tools: []*ktmsv1.Tool{{Name: "f", ParametersJson: c.schema, Strict: &c.strict}},
		})
		if string(w.Tools[0].Schema) != c.want || w.Tools[0].Strict != c.isStrict || !slices.Equal(out.dropped, c.dropped) {
			t.Errorf("%s: %v %s", c.name, out.dropped, out.body)
		}
	}
	for _, schema := range []string{`{"type":"string"}`, `[]`, `{`, `{"type":["string","null"]}`} {
		_, failed := encode(target("claude-opus-5-5"), &request{Messages: []*ktmsv1.Message{say(user, "u")}, Tools: []*ktmsv1.Tool{{Name: "f", ParametersJson: schema}}}, false)
		if failed == nil || failed.Kind != vendors.Invalid {
			t.Errorf("%s: %v", schema, failed)
		}
	}
}

// TestNullableParameters: others take what this vendor refuses.
func TestNullableParameters(t *testing.T) {
	_, failed := encode(target("claude-opus-5-5"), &request{Messages: []*ktmsv1.Message{say(user, "u")}, Tools: []*ktmsv1.Tool{{Name: "f", ParametersJson: `{"type":["object","null"]}`}}}, false)
	if failed == nil || failed.Kind != vendors.Unsupported {
		t.Error(failed)
	}
}

func TestToolNames(t *testing.T) {
	long := strings.Repeat("n", 128)
	for _, model := range []string{"claude-opus-5-5", "claude-haiku-4-5-20251001"} {
		out, w := encodes(t, target(model), &request{
			Messages: []*ktmsv1.Message{say(user, "u")},
			Tools:    []*ktmsv1.Tool{{Name: "a.b:c"}, {Name: "a_b_c"}, {Name: "a:b.c"}, {Name: long}},
		})
		seen := map[string]bool{}
		for i, own := range []string{"a.b:c", "a_b_c", "a:b.c", long} {
			name := w.Tools[i].Name
			if seen[name] || ownName(out.names, name) != own || model != "claude-opus-5-5" && len(name) > olderToolName {
				t.Errorf("%s became %s", own, name)
			}
			seen[name] = true
		}
	}
	// A choice and a history use the same names.
	encodes(t, target("claude-opus-5"), &request{
		Messages: []*ktmsv1.Message{say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{{Id: "1", Name: "a.b"}}}, result("1", "r")},
		Tools:    []*ktmsv1.Tool{{Name: "a.b"}}, ToolChoice: &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, FunctionName: "a.b"},
	})
}

func TestToolChoices(t *testing.T) {
	const (
		none     = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE
		required = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED
		one      = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION
		auto     = ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO
	)
	for _, c := range []struct {
		model    string
		choice   *ktmsv1.ToolChoice
		parallel *bool
		want     string
		kind     vendors.Kind
	}{
		{"claude-opus-5-5", nil, nil, "", 0},
		{"claude-opus-5-5", nil, new(false), `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`, 0},
		{"claude-opus-5-5", &ktmsv1.ToolChoice{Mode: auto}, new(true), `"tool_choice":{"type":"auto"}`, 0},
		{"claude-opus-5-5", &ktmsv1.ToolChoice{Mode: none}, new(false), `"tool_choice":{"type":"none"}`, 0},
		{"claude-opus-5", &ktmsv1.ToolChoice{Mode: required}, new(false), `"tool_choice":{"type":"any","disable_parallel_tool_use":true}`, 0},
		{"claude-opus-5", &ktmsv1.ToolChoice{Mode: one, FunctionName: "f"}, nil, `"tool_choice":{"type":"tool","name":"f"}`, 0},
		{"claude-opus-5-5", &ktmsv1.ToolChoice{Mode: required}, nil, "Call one of the tools", 0},
		{"claude-opus-5-5", &ktmsv1.ToolChoice{Mode: required}, new(false), `"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`, 0},
		{"claude-fable-5-1", &ktmsv1.ToolChoice{Mode: one, FunctionName: "f"}, nil, "Call the tool f now.", 0},
		{"claude-opus-5", &ktmsv1.ToolChoice{Mode: one, FunctionName: "g"}, nil, "", vendors.Invalid},
		{"claude-opus-5", &ktmsv1.ToolChoice{RawJson: `{}`}, nil, "", vendors.Unsupported},
	} {
		req := &request{Messages: []*ktmsv1.Message{say(user, "u")}, Tools: function(), ToolChoice: c.choice, ParallelToolCalls: c.parallel}
		if c.kind != 0 {
			if _, failed := encode(target(c.model), req, false); failed == nil || failed.Kind != c.kind {
				t.Errorf("%+v: %v", c, failed)
			}
			continue
		}
		if out, _ := encodes(t, target(c.model), req); !strings.Contains(string(out.body), c.want) || c.want == "" && strings.Contains(string(out.body), "tool_choice") || len(out.dropped) > 0 {
			t.Errorf("%+v: %v %s", c, out.dropped, out.body)
		}
	}
	if _, failed := encode(target("claude-opus-5"), &request{Messages: []*ktmsv1.Message{say(user, "u")}, ToolChoice: &ktmsv1.ToolChoice{Mode: required}}, false); failed == nil || failed.Kind != vendors.Invalid {
		t.Error(failed)
	}
	// The tools of earlier calls are declared where the request has none any more.
	out, w := encodes(t, target("claude-opus-5-5"), &request{Messages: []*ktmsv1.Message{say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("a"), uses("b")}}, result("a", "1"), result("b", "2")}})
	if len(w.Tools) != 1 || w.Choice.Type != "none" {
		t.Errorf("%s", out.body)
	}
}

func TestResponseFormats(t *testing.T) {
	const closed = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`
	for _, c := range []struct {
		name, model string
		req         *request
		format      string
		system      string
		enforced    bool
		dropped     []string
	}{
		{"any JSON", "claude-opus-5-5", &request{JsonObject: true}, "", jsonOnly, false, nil},
		{"enforced", "claude-opus-5-5", &request{ResponseSchemaJson: closed}, closed, "", true, nil},
		{"named", "claude-opus-5-5", &request{ResponseSchemaJson: closed, ResponseSchemaName: "n", ResponseSchemaDescription: "d"}, `{"title":"n","description":"d",` + closed[1:], "", true, nil},
		{"described twice", "claude-opus-5-5", &request{ResponseSchemaJson: `{"type":"string","description":"own","title":"t"}`, ResponseSchemaName: "n", ResponseSchemaDescription: "d"},
			`{"description":"d\nown","type":"string","title":"t"}`, "", true, nil},
		{"partly", "claude-opus-5-5", &request{ResponseSchemaJson: `{"type":"array","items":{"type":"string","format":"int64"},"minItems":2}`},
			`{"type":"array","items":{"type":"string","description":"format: \"int64\""},"description":"minItems: 2"}`, "", false, []string{"response_format.minItems", "response_format.format"}},
		{"an object of any shape", "claude-opus-5-5", &request{ResponseSchemaJson: `{"type":"object"}`}, "", schemaOnly + `{"type":"object"}`, false, nil},
		{"a model without schemas", "claude-3-5-haiku-latest", &request{ResponseSchemaJson: closed}, "", schemaOnly + closed, false, nil},
		{"references", "claude-opus-5-5", &request{ResponseSchemaJson: `{"$ref":"#/definitions/A","definitions":{"A":{"type":"string"}}}`}, `{"type":"string"}`, "", true, nil},
	} {
		c.req.Messages = []*ktmsv1.Message{say(user, "u")}
		out, w := encodes(t, target(c.model), c.req)
		system := ""
		if len(w.System) > 0 {
			system = w.System[0].Text
		}
		if string(w.Output.Format.Schema) != c.format || system != c.system || out.enforced != c.enforced || !slices.Equal(out.dropped, c.dropped) {
			t.Errorf("%s: enforced %v, dropped %v\n%s", c.name, out.enforced, out.dropped, out.body)
		}
	}
	_, failed := encode(target("claude-opus-5-5"), &request{Messages: []*ktmsv1.Message{say(user, "u")}, ResponseSchemaJson: `{"$ref":"https://x/y"}`}, false)
	if failed == nil || failed.Kind != vendors.Unsupported {
		t.Error(failed)
	}
}

func TestBreakpoints(t *testing.T) {
	const five, hour = `{"cache_control":{"type":"ephemeral"}}`, `{"cache_control":{"type":"ephemeral","ttl":"1h"}}`
	text := func(text, extra string) *ktmsv1.ContentPart {
		return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Text{Text: text}, ExtraJson: extra}
	}
	cached := target("claude-opus-5-5")
	cached.Capabilities = []string{"prompt_cache"}
	turns := []*ktmsv1.Message{say(user, "u"), say(assistant, "a"), say(user, "v")}
	for _, c := range []struct {
		name    string
		target  vendors.Target
		req     *request
		want    int
		dropped []string
	}{
		{"none", target("claude-opus-5-5"), &request{BaseSystemInstruction: "s", Tools: function(), Messages: turns}, 0, nil},
		{"tools, system, latest turns", cached, &request{BaseSystemInstruction: "s", Tools: function(), Messages: turns}, 4, nil},
		{"one turn", cached, &request{BaseSystemInstruction: "s", Messages: turns[:1]}, 1, nil},
		{"the caller's first", cached, &request{BaseSystemInstruction: "s", Tools: function(), Messages: []*ktmsv1.Message{
			{Role: user, Parts: []*ktmsv1.ContentPart{text("1", five), text("2", five), text("3", five)}}, say(assistant, "a"), say(user, "v")}}, 4, nil},
		{"too many", cached, &request{Messages: []*ktmsv1.Message{
			{Role: user, Parts: []*ktmsv1.ContentPart{text("1", five), text("2", five), text("3", five), text("4", five), text("5", five)}}}}, 4, []string{"cache_control"}},
		{"none of ours before an hour", cached, &request{BaseSystemInstruction: "s", Tools: function(), Messages: []*ktmsv1.Message{
			{Role: user, Text: "u", ExtraJson: hour}, say(assistant, "a"), say(user, "v")}}, 2, nil},
		{"an hour after five minutes", cached, &request{Messages: []*ktmsv1.Message{{Role: user, Parts: []*ktmsv1.ContentPart{text("1", five), text("2", hour)}}}}, 1, []string{"cache_control"}},
		{"nonsense", cached, &request{Messages: []*ktmsv1.Message{{Role: user, Text: "u", ExtraJson: `{"cache_control":{"type":"ephemeral","ttl":"2h"}}`}}}, 0, []string{"cache_control"}},
		{"on blank text", cached, &request{Messages: []*ktmsv1.Message{{Role: user, Parts: []*ktmsv1.ContentPart{text("1", ""), text(" ", five)}}}}, 0, []string{"cache_control"}},
		{"a tool's", target("claude-opus-5-5"), &request{Messages: turns, Tools: []*ktmsv1.Tool{{Name: "f", ExtraJson: hour}}}, 1, nil},
		{"results", cached, &request{Messages: []*ktmsv1.Message{say(user, "u"), {Role: assistant, ToolCalls: []*ktmsv1.ToolCall{uses("a")}},
			{Role: toolRole, ToolCallId: "a", Parts: []*ktmsv1.ContentPart{text("r", five)}}}, Tools: function()}, 3, nil},
		{"a null", cached, &request{Messages: []*ktmsv1.Message{{Role: user, Text: "u", ExtraJson: `{"cache_control":{"type":"ephemeral","ttl":null}}`}}}, 1, nil},
	} {
		out, _ := encodes(t, c.target, c.req)
		if got := strings.Count(string(out.body), `"cache_control"`); got != c.want || !slices.Equal(out.dropped, c.dropped) {
			t.Errorf("%s: %d, dropped %v\n%s", c.name, got, out.dropped, out.body)
		}
	}
}

// TestLatestBreakpoints: of too many, those at the end count, since the next request goes on from there.
func TestLatestBreakpoints(t *testing.T) {
	const five = `{"cache_control":{"type":"ephemeral"}}`
	req := &request{Tools: []*ktmsv1.Tool{{Name: "f", ExtraJson: five}}}
	for range 3 {
		req.Messages = append(req.Messages, &ktmsv1.Message{Role: user, Text: "u", ExtraJson: five}, &ktmsv1.Message{Role: assistant, Text: "a", ExtraJson: five})
	}
	req.Messages = append(req.Messages, &ktmsv1.Message{Role: user, Text: "u", ExtraJson: five})
	out, w := encodes(t, target("claude-opus-5-5"), req)
	marked := ""
	for _, m := range w.Messages {
		marked += map[bool]string{true: "x", false: "-"}[m.Content[0]["cache_control"] != nil]
	}
	if marked != "----xxx" || w.Tools[0].Cache == nil || !slices.Equal(out.dropped, []string{"cache_control"}) {
		t.Errorf("%s %s", marked, out.body)
	}
}

func TestTables(t *testing.T) {
	for _, model := range []string{"", "model", "claude-opus-5-5", "claude-opus-5", "claude-opus-4-8", "claude-opus-4-6", "claude-haiku-4-5", "claude-sonnet-4-0", "claude-3-7-sonnet-latest", "claude-3-opus-20240229"} {
		if missing := fieldsOf(model).Missing(); len(missing) > 0 {
			t.Errorf("%s: the table says nothing of %v", model, missing)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for base, want := range map[string]string{
		"": "https://api.anthropic.com/v1/messages", "https://h": "https://h/v1/messages", "https://h/v1/": "https://h/v1/messages",
		"http://h/anthropic": "http://h/anthropic/v1/messages", "https://h/a/v1/messages": "https://h/a/v1/messages", "https://h/?q=1#f": "https://h/v1/messages?q=1",
		"ftp://h": "", "h": "", ":": "",
	} {
		got, failed := endpoint(vendors.Target{BaseURL: base})
		if got != want || (failed == nil) != (want != "") {
			t.Errorf("%q: %q %v", base, got, failed)
		}
	}
}
