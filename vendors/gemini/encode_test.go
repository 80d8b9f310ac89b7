package gemini

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

const (
	user      = ktmsv1.MessageRole_MESSAGE_ROLE_USER
	assistant = ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT
	tool      = ktmsv1.MessageRole_MESSAGE_ROLE_TOOL
	system    = ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM
	developer = ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER
)

func target(model string) vendors.Target { return vendors.Target{Vendor: vendors.Google, Model: model} }

func say(role ktmsv1.MessageRole, text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: role, Text: text}
}

func asks(calls ...*ktmsv1.ToolCall) *ktmsv1.Message {
	return &ktmsv1.Message{Role: assistant, ToolCalls: calls}
}

func call(id, name, arguments string) *ktmsv1.ToolCall {
	return &ktmsv1.ToolCall{Id: id, Name: name, Arguments: arguments}
}

func result(id, text string) *ktmsv1.Message {
	return &ktmsv1.Message{Role: tool, ToolCallId: id, Text: text}
}

func with(messages ...*ktmsv1.Message) *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{Messages: messages}
}

func hi() *ktmsv1.GenerateTextRequest { return with(say(user, "hi")) }

// parts makes a message of parts.
func parts(role ktmsv1.MessageRole, list ...*ktmsv1.ContentPart) *ktmsv1.Message {
	return &ktmsv1.Message{Role: role, Parts: list}
}

func image(url string) *ktmsv1.ContentPart {
	return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: url}}}}
}

func document(d *ktmsv1.DocumentPart) *ktmsv1.ContentPart {
	return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: d}}
}

func text(s string) *ktmsv1.ContentPart {
	return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Text{Text: s}}
}

func TestConversations(t *testing.T) {
	const hiTurn = `{"role":"user","parts":[{"text":"hi"}]}`
	weather := func(id, args string) *ktmsv1.ToolCall { return call(id, "w", args) }
	for name, c := range map[string]struct {
		model string
		req   *ktmsv1.GenerateTextRequest
		want  string // the body without its braces
	}{
		"instructions in order": {"gemini-4-argon", &ktmsv1.GenerateTextRequest{
			BaseSystemInstruction: "a", RequestInstruction: "b",
			Messages: []*ktmsv1.Message{say(system, "c"), say(developer, "d"), say(user, "hi"), say(system, "e")},
		}, `"systemInstruction":{"parts":[{"text":"a"},{"text":"b"},{"text":"c"},{"text":"d"}]},"contents":[{"role":"user","parts":[{"text":"hi"},` +
			`{"text":"<system_instruction>\ne\n</system_instruction>"}]}]`},
		"instructions alone": {"gemini-4-argon", &ktmsv1.GenerateTextRequest{RequestInstruction: "b"}, `"contents":[{"role":"user","parts":[{"text":"b"}]}]`},
		"an instruction with a picture": {"gemini-4-argon", with(parts(system, text("look"), image("https://h.example/a.JPG?x=1")), say(user, "hi")),
			`"contents":[{"role":"user","parts":[{"text":"<system_instruction>\nlook\n</system_instruction>"},` +
				`{"fileData":{"mimeType":"image/jpeg","fileUri":"https://h.example/a.JPG?x=1"}},{"text":"hi"}]}]`},
		"the assistant begins": {"gemini-4-argon", with(say(assistant, "a"), say(user, "hi")),
			`"contents":[{"role":"user","parts":[{"text":"(conversation start)"}]},{"role":"model","parts":[{"text":"a"}]},` + hiTurn + `]`},
		"blanks": {"gemini-4-argon", with(say(user, "hi"), say(assistant, " "), say(user, "\n"), say(user, "hi")),
			`"contents":[{"role":"user","parts":[{"text":"hi"},{"text":"hi"}]}]`},
		"results in reverse, one with a picture": {"gemini-2.5-pro", with(say(user, "hi"),
			asks(weather("1", `{"b": 1.0,  "a":9007199254740993}`), weather("2", "")), result("2", `[1]`),
			&ktmsv1.Message{Role: tool, ToolCallId: "1", Parts: []*ktmsv1.ContentPart{text(`{"ok":`), text(`true}`), image("data:image/png;base64,aGk")}}, say(user, "hi")),
			`"contents":[` + hiTurn + `,{"role":"model","parts":[{"functionCall":{"id":"1","name":"w","args":{"b": 1.0,  "a":9007199254740993}}},` +
				`{"functionCall":{"id":"2","name":"w","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"1","name":"w","response":{"ok":` + "\n" + `true}}},` +
				`{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"functionResponse":{"id":"2","name":"w","response":{"output":"[1]"}}},{"text":"hi"}]}]`},
		"ids that come again": {"gemini-2.5-pro", with(asks(call("1", "f", "{}")), result("1", "x"), asks(call("1", "g", "{}")), result("1", `{"y":1}`)),
			`"contents":[{"role":"user","parts":[{"text":"(conversation start)"}]},{"role":"model","parts":[{"functionCall":{"id":"1","name":"f","args":{}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"id":"1","name":"f","response":{"output":"x"}}}]},` +
				`{"role":"model","parts":[{"functionCall":{"id":"1","name":"g","args":{}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"id":"1","name":"g","response":{"y":1}}}]}]`},
		"calls without a signature": {"gemini-3.5-flash", with(say(user, "hi"), asks(weather("1", "{}"), weather("2", "{}")), result("1", "x"), result("2", "")),
			`"contents":[` + hiTurn + `,{"role":"model","parts":[{"functionCall":{"id":"1","name":"w","args":{}},"thoughtSignature":"skip_thought_signature_validator"},` +
				`{"functionCall":{"id":"2","name":"w","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"1","name":"w","response":{"output":"x"}}},` +
				`{"functionResponse":{"id":"2","name":"w","response":{"output":""}}}]}]`},
		"names of calls": {"gemini-2.5-pro", with(say(user, "hi"), asks(call("1", "9 lives", "{}")), result("1", "x")),
			`"contents":[` + hiTurn + `,{"role":"model","parts":[{"functionCall":{"id":"1","name":"_9_lives","args":{}}}]},` +
				`{"role":"user","parts":[{"functionResponse":{"id":"1","name":"_9_lives","response":{"output":"x"}}}]}]`},
		"a refusal": {"gemini-4-argon", with(say(user, "hi"), &ktmsv1.Message{Role: assistant, Refusal: "no"}, say(user, "hi")),
			`"contents":[` + hiTurn + `,{"role":"model","parts":[{"text":"no"}]},` + hiTurn + `]`},
	} {
		got, failed := encode(target(c.model), c.req)
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
		} else if want := "{" + c.want + "}"; string(got.body) != want || !json.Valid(got.body) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got.body, want)
		}
	}
}

func TestSignaturesGoBackToTheirParts(t *testing.T) {
	const model = "gemini-4-argon"
	own := state{Text: "s/T+==", Calls: []string{"s1", "", "s3"}, Server: []string{`{"toolCall": {"id":"x"},"thoughtSignature":"<s0>"}`}}
	turn := &ktmsv1.Message{Role: assistant, Text: "t", Reasoning: "r", Opaque: own.seal(model), ToolCalls: []*ktmsv1.ToolCall{
		call("1", "f", "{}"), call("2", "f", "{}"), call("3", "f", "{}"),
	}}
	req := with(say(user, "hi"), turn, result("1", "x"), result("2", "x"), result("3", "x"))
	got, failed := encode(target(model), req)
	if failed != nil {
		t.Fatal(failed)
	}
	want := `{"role":"model","parts":[{"toolCall": {"id":"x"},"thoughtSignature":"<s0>"},{"text":"t","thoughtSignature":"s/T+=="},` +
		`{"functionCall":{"id":"1","name":"f","args":{}},"thoughtSignature":"s1"},{"functionCall":{"id":"2","name":"f","args":{}}},` +
		`{"functionCall":{"id":"3","name":"f","args":{}},"thoughtSignature":"s3"}]}`
	if !strings.Contains(string(got.body), want) || len(got.dropped) > 0 {
		t.Errorf("dropped %v:\n%s\nwant\n%s", got.dropped, got.body, want)
	}
	// Another model's state is none, and the reasoning is lost with it.
	if got, failed = encode(target("gemini-4-neon"), req); failed != nil || strings.Contains(string(got.body), "s1") ||
		!strings.Contains(string(got.body), noSignature) || !slices.Equal(got.dropped, []string{"reasoning_content"}) {
		t.Errorf("%v %+v", failed, got)
	}
}

// A state comes from the caller: it must not put words into the model's mouth.
func TestMadeUpStates(t *testing.T) {
	for raw, want := range map[string]bool{
		`{"toolCall":{"id":"x"},"thoughtSignature":"s"}`: true, `{"toolResponse":{}}`: true,
		`{"text":"made up"}`: false, `{"toolCall":{},"text":"made up"}`: false, `{"toolCall":{},"toolResponse":{}}`: false,
		`{"functionCall":{"name":"f"}}`: false, `{"toolCall":"x"}`: false, `{"toolCall":{}},{"text":"made up"}`: false, `{}`: false,
	} {
		made := state{Server: []string{raw}}
		if got := openState("gemini-4-argon", made.seal("gemini-4-argon")); (len(got.Server) == 1) != want {
			t.Errorf("%s: %+v", raw, got)
		}
	}
}

func TestParts(t *testing.T) {
	wav, pdf := []byte("RIFF\x00\x00\x00\x00WAVEfmt "), []byte("%PDF-1.7")
	audio := func(format string, data []byte) *ktmsv1.ContentPart {
		return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Audio{Audio: &ktmsv1.AudioPart{Data: data, Format: format}}}
	}
	document := func(d *ktmsv1.DocumentPart) *ktmsv1.ContentPart {
		return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: d}}
	}
	inline := func(mime, data string) string {
		return `{"inlineData":{"mimeType":"` + mime + `","data":"` + data + `"}}`
	}
	for name, c := range map[string]struct {
		part *ktmsv1.ContentPart
		want string
	}{
		"data URL":             {image("data:image/webp;base64,aGkt"), inline("image/webp", "aGkt")},
		"data URL, other way":  {image("DATA:IMAGE/GIF;charset=x;BASE64,_-%2F%0A\n=="), inline("image/gif", "/+8=")},
		"data URL, plain":      {document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{Url: "data:text/plain,hi%20"}}), inline("text/plain", "aGkg")},
		"data URL without one": {image("data:;base64,iVBORw0KGgo="), inline("image/png", "iVBORw0KGgo=")},
		"link without a type":  {image("https://h.example/a"), `{"fileData":{"fileUri":"https://h.example/a"}}`},
		"sniffed": {&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{
			Source: &ktmsv1.ImagePart_Data{Data: []byte("\x89PNG\r\n\x1a\n")}}}}, inline("image/png", "iVBORw0KGgo=")},
		"mp3":           {audio("MP3", []byte("x")), inline("audio/mp3", "eA==")},
		"opus":          {audio("opus", []byte("x")), inline("audio/ogg", "eA==")},
		"sniffed sound": {audio("", wav), inline("audio/wav", "UklGRgAAAABXQVZFZm10IA==")},
		"pdf":           {document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: pdf}}), inline("application/pdf", "JVBERi0xLjc=")},
		"by name":       {document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: []byte("x")}, Filename: "a.CSV"}), inline("text/csv", "eA==")},
		"file": {document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_FileId{FileId: "files/a"}, MimeType: "application/pdf"}),
			`{"fileData":{"mimeType":"application/pdf","fileUri":"files/a"}}`},
		"link": {document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{Url: "https://h.example/a.pdf"}}),
			`{"fileData":{"mimeType":"application/pdf","fileUri":"https://h.example/a.pdf"}}`},
	} {
		got, failed := encode(target(""), with(parts(user, c.part)))
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
		} else if want := `{"contents":[{"role":"user","parts":[` + c.want + `]}]}`; string(got.body) != want {
			t.Errorf("%s: %s", name, got.body)
		}
	}
}

// config is what stands beside the contents.
func config(t *testing.T, model string, req *ktmsv1.GenerateTextRequest) (rest, dropped string) {
	t.Helper()
	got, failed := encode(target(model), req)
	if failed != nil {
		return failed.Kind.String() + " " + failed.Message, ""
	}
	if !json.Valid(got.body) {
		t.Errorf("not JSON: %s", got.body)
	}
	_, rest, _ = strings.Cut(string(got.body), `"parts":[{"text":"hi"}]}]`)
	return strings.TrimSuffix(strings.TrimPrefix(rest, ","), "}"), strings.Join(got.dropped, " ")
}

func TestConfig(t *testing.T) {
	all := func(r *ktmsv1.GenerateTextRequest) {
		r.Temperature, r.TopP, r.TopK, r.Seed = new(0.0), new(0.0), new(int32(0)), new(int64(0))
		r.PresencePenalty, r.FrequencyPenalty = new(0.0), new(-0.5)
		r.MaxOutputTokens, r.N = 9, new(int32(2))
	}
	for name, c := range map[string]struct {
		model         string
		set           func(*ktmsv1.GenerateTextRequest)
		want, dropped string
	}{
		"sampling": {"gemini-3.8-flash", all, `"generationConfig":{"temperature":0,"topP":0,"topK":0,"presencePenalty":0,"frequencyPenalty":-0.5,"seed":0,"candidateCount":2,"maxOutputTokens":9}`, ""},
		"no sampling": {"gemini-4-argon", all, `"generationConfig":{"seed":0,"candidateCount":2,"maxOutputTokens":9}`,
			"temperature top_p top_k frequency_penalty"},
		"large seed": {"", func(r *ktmsv1.GenerateTextRequest) { r.Seed = new(int64(1<<32 + 5)) }, `"generationConfig":{"seed":5}`, ""},
		"stops": {"", func(r *ktmsv1.GenerateTextRequest) { r.Stop = []string{"", "a", "b", "c", "d", "e"} },
			`"generationConfig":{"stopSequences":["a","b","c","d","e"]}`, ""},
		"too many stops": {"", func(r *ktmsv1.GenerateTextRequest) { r.Stop = []string{"a", "b", "c", "d", "e", "f"} },
			`"generationConfig":{"stopSequences":["a","b","c","d","e"]}`, "stop"},
		"too many answers": {"", func(r *ktmsv1.GenerateTextRequest) { r.N = new(int32(9)) }, "unsupported n cannot be carried to this vendor: it gives at most 8 answers to one call", ""},
		"logprobs": {"", func(r *ktmsv1.GenerateTextRequest) { r.Logprobs, r.TopLogprobs = new(true), new(int32(3)) },
			`"generationConfig":{"responseLogprobs":true,"logprobs":3}`, ""},
		"no logprobs":     {"", func(r *ktmsv1.GenerateTextRequest) { r.Logprobs, r.TopLogprobs = new(false), new(int32(3)) }, "", ""},
		"tier auto":       {"", func(r *ktmsv1.GenerateTextRequest) { r.ServiceTier = "auto" }, `"serviceTier":"standard"`, ""},
		"tier default":    {"", func(r *ktmsv1.GenerateTextRequest) { r.ServiceTier = "default" }, `"serviceTier":"standard"`, ""},
		"tier flex":       {"", func(r *ktmsv1.GenerateTextRequest) { r.ServiceTier = "flex" }, `"serviceTier":"flex"`, ""},
		"tier of another": {"", func(r *ktmsv1.GenerateTextRequest) { r.ServiceTier = "scale" }, "", "service_tier"},
		"unknown members": {"", func(r *ktmsv1.GenerateTextRequest) { r.ExtraJson = `{"b":1,"a":{}}` }, "", "b a"},
		"not members":     {"", func(r *ktmsv1.GenerateTextRequest) { r.ExtraJson = `[]` }, "invalid extra_json: is not a JSON object", ""},
		"any JSON":        {"", func(r *ktmsv1.GenerateTextRequest) { r.JsonObject = true }, `"generationConfig":{"responseMimeType":"application/json"}`, ""},
		"strict":          {"", func(r *ktmsv1.GenerateTextRequest) { r.Verbosity, r.StrictParams = "low", true }, "unsupported verbosity cannot be carried to this vendor", ""},
		"search":          {"", func(r *ktmsv1.GenerateTextRequest) { r.EnableGoogleSearch = true }, `"tools":[{"googleSearch":{}}]`, ""},
		"a choice of nothing": {"", func(r *ktmsv1.GenerateTextRequest) {
			r.ToolChoice = &ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED}
		},
			"invalid tool_choice: there are no tools to choose from", ""},
	} {
		req := hi()
		c.set(req)
		if rest, dropped := config(t, c.model, req); rest != c.want || dropped != c.dropped {
			t.Errorf("%s: %s, dropped %s", name, rest, dropped)
		}
	}
}

func TestThinking(t *testing.T) {
	level := func(l string) string {
		return `"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"` + l + `"}}`
	}
	budget := func(n int) string {
		return fmt.Sprintf(`"generationConfig":{"thinkingConfig":{"includeThoughts":true,"thinkingBudget":%d}}`, n)
	}
	hidden := func(s string) string { return strings.Replace(s, `"includeThoughts":true,`, "", 1) }
	for _, c := range []struct{ model, effort, want string }{
		{"gemini-4-argon", "none", hidden(level("LOW"))}, {"gemini-4-argon", "minimal", level("LOW")}, {"gemini-4-argon", "low", level("LOW")},
		{"gemini-4-argon", "medium", level("MEDIUM")}, {"gemini-4-argon", "high", level("HIGH")}, {"gemini-4-argon", "xhigh", level("HIGH")},
		{"gemini-4-argon", "max", level("HIGH")}, {"gemini-pro-latest", "none", hidden(level("LOW"))}, {"", "low", level("LOW")},
		{"models/gemini-3.8-flash", "none", hidden(level("MINIMAL"))}, {"gemini-3.1-pro-preview", "minimal", level("LOW")},
		{"gemini-2.5-flash", "none", hidden(budget(0))}, {"gemini-2.5-flash-lite", "minimal", budget(1024)}, {"gemini-2.5-flash", "medium", budget(8192)},
		{"gemini-2.5-flash", "max", budget(24576)}, {"gemini-2.5-pro", "none", hidden(budget(128))}, {"gemini-2.5-pro", "high", budget(32768)},
		{"gemini-2.5-flash-image", "high", "dropped reasoning_effort"}, {"gemini-2.0-flash", "high", "dropped reasoning_effort"},
		{"gemma-3-27b-it", "high", "dropped reasoning_effort"}, {"tunedModels/x", "high", "dropped reasoning_effort"},
		{"gemini-2.5.1-flash", "none", hidden(budget(0))}, {"gemini-2.10-flash", "none", hidden(budget(0))},
		{"publishers/google/models/gemini-2.5-pro", "none", hidden(budget(128))},
		{"projects/p/locations/l/publishers/google/models/gemini-3.8-flash", "none", hidden(level("MINIMAL"))},
		{"gemini-4-argon", "huge", "dropped reasoning_effort"},
	} {
		req := hi()
		req.ReasoningEffort = c.effort
		rest, dropped := config(t, c.model, req)
		if dropped != "" {
			rest = "dropped " + dropped
		}
		if rest != c.want {
			t.Errorf("%s %s: %s", c.model, c.effort, rest)
		}
	}
}

func TestTools(t *testing.T) {
	plain, strict := &ktmsv1.Tool{Name: "f"}, &ktmsv1.Tool{Name: "f", Strict: new(true)}
	mode := func(m ktmsv1.ToolChoiceMode, name string) *ktmsv1.ToolChoice {
		return &ktmsv1.ToolChoice{Mode: m, FunctionName: name}
	}
	const f = `"tools":[{"functionDeclarations":[{"name":"f"}]}]`
	calling := func(m string) string { return f + `,"toolConfig":{"functionCallingConfig":{"mode":` + m + `}}` }
	for name, c := range map[string]struct {
		model  string
		tool   *ktmsv1.Tool
		choice *ktmsv1.ToolChoice
		search bool
		want   string
	}{
		"plain":    {"", plain, nil, false, f},
		"auto":     {"", plain, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, ""), false, calling(`"AUTO"`)},
		"none":     {"", strict, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE, ""), false, calling(`"NONE"`)},
		"required": {"", strict, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED, ""), false, calling(`"ANY"`)},
		"one":      {"", plain, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, "f"), false, calling(`"ANY","allowedFunctionNames":["f"]`)},
		"another":  {"", plain, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, "g"), false, "invalid tool_choice: g is not among the tools"},
		"raw":      {"", plain, &ktmsv1.ToolChoice{RawJson: `{}`}, false, "unsupported tool_choice cannot be carried to this vendor"},
		"strict":   {"", strict, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, ""), false, calling(`"VALIDATED"`)},
		"beside search": {"", plain, nil, true, `"tools":[{"functionDeclarations":[{"name":"f"}]},{"googleSearch":{}}],` +
			`"toolConfig":{"functionCallingConfig":{"mode":"VALIDATED"},"includeServerSideToolInvocations":true}`},
		"not beside search": {"gemini-2.5-pro", plain, nil, true, f + " dropped enable_google_search"},
		"digit first": {"", &ktmsv1.Tool{Name: "2f"}, mode(ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, "2f"), false,
			`"tools":[{"functionDeclarations":[{"name":"_2f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["_2f"]}}`},
		"digit first, long": {"", &ktmsv1.Tool{Name: "2" + strings.Repeat("f", 127)}, nil, false,
			"unsupported tools cannot be carried to this vendor: the name 2" + strings.Repeat("f", 127) + " has to begin with a letter or an underscore"},
		"typed schema": {"", &ktmsv1.Tool{Name: "f", Parameters: &structpb.Struct{Fields: map[string]*structpb.Value{"type": structpb.NewStringValue("object")}}}, nil, false,
			`"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":{"type":"object"}}]}]`},
		"adapted schema": {"", &ktmsv1.Tool{Name: "f", Description: "d", ParametersJson: `{"$schema":"s","type":"object","properties":{"pattern":{"type":"string","pattern":"^a"},"e":{"enum":["a",null]},"o":{"oneOf":[{"const":1}]}}}`}, nil, false,
			`"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"pattern":{"type":"string","description":"pattern: \"^a\""},` +
				`"e":{"description":"enum: [\"a\",null]"},"o":{"anyOf":[{"enum":[1]}]}}}}]}] dropped tools.parameters.pattern tools.parameters.enum`},
		"broken schema": {"", &ktmsv1.Tool{Name: "f", ParametersJson: `{"$ref":"#/x"}`}, nil, false,
			"unsupported tools.parameters cannot be carried to this vendor: the schema has a reference that leads nowhere within it"},
	} {
		req := hi()
		req.Tools, req.ToolChoice, req.EnableGoogleSearch = []*ktmsv1.Tool{c.tool}, c.choice, c.search
		rest, dropped := config(t, c.model, req)
		if dropped != "" {
			rest += " dropped " + dropped
		}
		if rest != c.want {
			t.Errorf("%s: %s", name, rest)
		}
	}
	taken := hi()
	taken.Tools = []*ktmsv1.Tool{{Name: "2f"}, {Name: "_2f"}}
	if rest, _ := config(t, "", taken); !strings.HasPrefix(rest, "unsupported tools") {
		t.Error(rest)
	}
}

func TestResponseSchema(t *testing.T) {
	const answer = `{"type":"object","description":"own","properties":{"zeta":{"type":"string"},"a":{"type":"number","minimum":1.50}},"required":["zeta"]}`
	req := hi()
	req.ResponseSchemaJson, req.ResponseSchemaName, req.ResponseSchemaDescription = answer, "n", "d"
	entitled := `{"title":"n","description":"d\nown","type":"object","properties":{"zeta":{"type":"string"},"a":{"type":"number","minimum":1.50}},"required":["zeta"]}`
	got, failed := encode(target("gemini-2.5-pro"), req)
	if failed != nil || !got.enforced || !strings.HasSuffix(string(got.body), `"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":`+entitled+`}}`) {
		t.Errorf("%v %s", failed, got.body)
	}
	req.Tools = []*ktmsv1.Tool{{Name: "f"}}
	got, failed = encode(target("gemini-2.5-pro"), req)
	if failed != nil || got.enforced || !slices.Equal(got.dropped, []string{"response_format"}) || strings.Contains(string(got.body), "responseMimeType") ||
		!strings.Contains(string(got.body), `zeta`) {
		t.Errorf("%v %+v %s", failed, got.dropped, got.body)
	}
	if got, failed = encode(target("gemini-3.5-flash"), req); failed != nil || !got.enforced || len(got.dropped) > 0 {
		t.Errorf("%v %+v", failed, got)
	}
	req.ResponseSchemaJson = `{"type":"string","pattern":"a"}`
	if got, failed = encode(target(""), req); failed != nil || got.enforced || !slices.Equal(got.dropped, []string{"response_format.pattern"}) {
		t.Errorf("%v %+v", failed, got)
	}
	req.ResponseSchemaJson = `[]`
	if _, failed = encode(target(""), req); failed == nil || failed.Kind != vendors.Invalid {
		t.Error(failed)
	}
}

// What the vendor takes and does not hold an answer to is left for Keystone to check.
func TestWhatIsNotEnforced(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"string","format":"date-time"}`:                                                true,
		`{"type":"string","format":"email"}`:                                                    false,
		`{"anyOf":[{"type":"string"},{"type":"integer"}]}`:                                      true,
		`{"type":"object","properties":{"a":{"oneOf":[{"type":"number"},{"type":"integer"}]}}}`: false,
	} {
		req := hi()
		req.ResponseSchemaJson = text
		got, failed := encode(target(""), req)
		if failed != nil || got.enforced != want || !strings.Contains(string(got.body), "responseJsonSchema") {
			t.Errorf("%s: %v %+v", text, failed, got)
		}
	}
}

// JSON cannot be asked for beside functions before 3.0, so that the model has to be told.
func TestJSONBesideFunctions(t *testing.T) {
	req := hi()
	req.JsonObject, req.Tools = true, []*ktmsv1.Tool{{Name: "f"}}
	got, failed := encode(target("gemini-2.5-pro"), req)
	if failed != nil || len(got.dropped) > 0 || strings.Contains(string(got.body), "responseMimeType") ||
		!strings.Contains(string(got.body), `"systemInstruction":{"parts":[{"text":"`+objectInstruction+`"}]}`) {
		t.Errorf("%v %+v %s", failed, got.dropped, got.body)
	}
	if got, failed = encode(target("gemini-3.5-flash"), req); failed != nil || !strings.Contains(string(got.body), "responseMimeType") {
		t.Errorf("%v %s", failed, got.body)
	}
}

func TestMembersThatSayNothingAreNotLost(t *testing.T) {
	req := hi()
	req.ExtraJson, req.Messages[0].ExtraJson, req.StrictParams = `{"user":null}`, `{"audio":null}`, true
	if _, failed := encode(target(""), req); failed != nil {
		t.Error(failed)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		req  *ktmsv1.GenerateTextRequest
		want string
	}{
		"nothing":            {with(say(user, " ")), "invalid: messages: are empty"},
		"arguments":          {with(say(user, "hi"), asks(call("1", "f", "[1]")), result("1", "x")), "unsupported: messages[1].tool_calls[0].arguments"},
		"cut arguments":      {with(say(user, "hi"), asks(call("1", "f", `{"a":`)), result("1", "x")), "unsupported: messages[1].tool_calls[0].arguments"},
		"no name":            {with(say(user, "hi"), asks(call("1", "", `{}`)), result("1", "x")), "invalid: messages[1].tool_calls[0].name"},
		"no result":          {with(say(user, "hi"), asks(call("c7", "f", "{}")), say(user, "hi")), "invalid: messages[1].tool_calls[0]: the call c7 has no result"},
		"no result at all":   {with(say(user, "hi"), asks(call("c7", "f", "{}"))), "invalid: messages[1].tool_calls[0]: the call c7 has no result"},
		"no call":            {with(say(user, "hi"), result("c7", "x")), "invalid: messages[1].tool_call_id: c7 answers no call"},
		"a result too early": {with(result("c7", "x"), asks(call("c7", "f", "{}"))), "invalid: messages[1].tool_calls[0]: the call c7"},
		"two results":        {with(say(user, "hi"), asks(call("c7", "f", "{}")), result("c7", "x"), result("c7", "y")), "invalid: messages[3].tool_call_id: c7"},
		"custom":             {with(say(user, "hi"), asks(&ktmsv1.ToolCall{Id: "1", Name: "f", Type: "custom"}), result("1", "x")), "unsupported: tool_calls.custom"},
		"no role":            {with(&ktmsv1.Message{Text: "x"}), "invalid: messages[0].role"},
		"no part":            {with(parts(user, &ktmsv1.ContentPart{})), "invalid: messages[0].parts[0]: is empty"},
		"an empty picture":   {with(parts(user, &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{}}})), "invalid: messages[0].parts[0].image.data: is empty"},
		"a broken data URL":  {with(parts(user, image("data:image/png;base64,!"))), "invalid: messages[0].parts[0].image.url"},
		"half a data URL":    {with(parts(user, image("data:image/png"))), "invalid: messages[0].parts[0].image.url"},
		"no file":            {with(parts(user, document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_FileId{}}))), "invalid: messages[0].parts[0].document.file_id: is empty"},
		"no address":         {with(parts(user, document(&ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{}}))), "invalid: messages[0].parts[0].document.url: is empty"},
		"a vector":           {with(parts(user, &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Embedding{Embedding: &ktmsv1.EmbeddingPart{}}})), "unsupported: embedding"},
		"an unknown part":    {with(parts(user, &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_RawJson{RawJson: "{}"}})), "unsupported: messages.content"},
		"an unknown tool":    {&ktmsv1.GenerateTextRequest{Messages: hi().Messages, Tools: []*ktmsv1.Tool{{RawJson: "{}"}}}, "unsupported: tools"},
	} {
		if got, failed := encode(target("gemini-4-argon"), c.req); failed == nil || !strings.HasPrefix(failed.Kind.String()+": "+failed.Message, c.want) {
			t.Errorf("%s: %v, %v", name, failed, got)
		}
	}
}

func TestTableIsComplete(t *testing.T) {
	for _, model := range []string{"", "gemini-2.0-flash", "gemini-2.5-pro", "gemini-3.1-pro-preview", "gemini-4-argon", "gemma-3"} {
		if missing := New(Options{}).Fields(vendors.Google, model).Missing(); len(missing) > 0 {
			t.Errorf("%s: %v", model, missing)
		}
	}
}
