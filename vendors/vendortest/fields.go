package vendortest

import (
	"bytes"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// A probe is one field in a request. The table of a dialect is proven by comparing the body with and without it.
type probe struct {
	// base makes the request in which the field can stand; nil is the usual one.
	base func(*ktmsv1.GenerateTextRequest)
	// set sets the field. A field whose values are not all alike has several; one of them has to be carried then.
	set []func(*ktmsv1.GenerateTextRequest)
	// canary is text that a native field leaves in the body.
	canary string
	// param is the name under which it is dropped, if it is not the field's own.
	param string
	// same: the value asks for what happens anyway, so the body need not change.
	same bool
}

type edit = func(*ktmsv1.GenerateTextRequest)

func sets(edits ...edit) []edit { return edits }

const (
	canaryMember = "canary_member"
	canaryExtra  = `{"canary_member":"canary-extra"}`
	canaryCache  = `{"cache_control":{"type":"ephemeral"}}`
	canarySchema = `{"type":"object","properties":{"canary_property":{"type":"string"}},"required":["canary_property"],"additionalProperties":false}`
)

var (
	canaryPNG = []byte("\x89PNG\r\n\x1a\ncanary")
	canaryPDF = []byte("%PDF-1.7 canary")
	canaryWAV = []byte("RIFF\x00\x00\x00\x00WAVEcanary")
)

func part(p *ktmsv1.ContentPart) edit {
	return func(r *ktmsv1.GenerateTextRequest) {
		r.Messages[0].Text = ""
		r.Messages[0].Parts = append([]*ktmsv1.ContentPart{textPart("look")}, proto.CloneOf(p))
	}
}

func textPart(text string) *ktmsv1.ContentPart {
	return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Text{Text: text}}
}

func imagePart(detail string) *ktmsv1.ContentPart {
	return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Data{Data: canaryPNG}, Detail: detail}}}
}

func documentPart(name string) *ktmsv1.ContentPart {
	return &ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{Document: &ktmsv1.DocumentPart{
		Source: &ktmsv1.DocumentPart_Data{Data: canaryPDF}, MimeType: "application/pdf", Filename: name}}}
}

func withTool(change ...func(*ktmsv1.Tool)) edit {
	return func(r *ktmsv1.GenerateTextRequest) {
		tool := &ktmsv1.Tool{Name: "get_weather", ParametersJson: canarySchema}
		for _, c := range change {
			c(tool)
		}
		r.Tools = append(r.Tools, tool)
	}
}

func choice(c *ktmsv1.ToolChoice) []edit {
	return sets(func(r *ktmsv1.GenerateTextRequest) { r.ToolChoice = c })
}

// called adds a call, its result and what the user says then.
func called(change ...func(call, result *ktmsv1.Message)) edit {
	return func(r *ktmsv1.GenerateTextRequest) {
		call := &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, ToolCalls: []*ktmsv1.ToolCall{
			{Id: "callnum01", Name: "get_weather", Arguments: `{"city":"canary-city"}`}}}
		result := &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "callnum01", Text: "canary-result"}
		for _, c := range change {
			c(call, result)
		}
		r.Messages = append(r.Messages, call, result)
	}
}

// answered adds an assistant's turn and the user's next.
func answered(change ...func(*ktmsv1.Message)) edit {
	return func(r *ktmsv1.GenerateTextRequest) {
		m := &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, Text: "before"}
		for _, c := range change {
			c(m)
		}
		r.Messages = append(r.Messages, m, &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "and now?"})
	}
}

func both(a, b edit) edit {
	return func(r *ktmsv1.GenerateTextRequest) { a(r); b(r) }
}

func schema(change ...edit) edit {
	return func(r *ktmsv1.GenerateTextRequest) {
		r.ResponseSchemaJson = canarySchema
		for _, c := range change {
			c(r)
		}
	}
}

func canaryStruct() *structpb.Struct {
	s := &structpb.Struct{}
	if err := s.UnmarshalJSON([]byte(canarySchema)); err != nil {
		panic(err)
	}
	return s
}

var probes = map[vendors.Field]probe{
	vendors.BaseSystemInstruction: {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.BaseSystemInstruction = "canary-base" }), canary: "canary-base"},
	vendors.RequestInstruction:    {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.RequestInstruction = "canary-instruction" }), canary: "canary-instruction"},
	vendors.SystemTurns: {base: answered(), canary: "canary-system", set: sets(func(r *ktmsv1.GenerateTextRequest) {
		r.Messages = slices.Insert(r.Messages, 2, &ktmsv1.Message{Role: ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM, Text: "canary-system"})
	})},
	vendors.MessageText:      {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].Text = "canary-text" }), canary: "canary-text"},
	vendors.MessageName:      {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].Name = "canaryname" }), canary: "canaryname"},
	vendors.MessageReasoning: {base: answered(), set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Messages[1].Reasoning = "canary-reasoning" }), canary: "canary-reasoning"},
	vendors.MessageRefusal: {base: answered(), canary: "canary-refusal", set: sets(func(r *ktmsv1.GenerateTextRequest) {
		r.Messages[1].Text, r.Messages[1].Refusal = "", "canary-refusal"
	})},
	vendors.MessageExtra: {param: canaryMember, set: sets(
		func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].ExtraJson = canaryExtra },
		func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].ExtraJson = `{"prefix":true}` },
		func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].ExtraJson = canaryCache },
	)},

	vendors.PartText: {set: sets(part(textPart("canary-text"))), canary: "canary-text"},
	vendors.PartImageURL: {canary: "https://images.example/canary.png", set: sets(part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{
		Image: &ktmsv1.ImagePart{Source: &ktmsv1.ImagePart_Url{Url: "https://images.example/canary.png"}}}}))},
	vendors.PartImageData:   {set: sets(part(imagePart(""))), canary: base64.StdEncoding.EncodeToString(canaryPNG)},
	vendors.PartImageDetail: {base: part(imagePart("")), set: sets(part(imagePart("high"))), canary: `"high"`},
	vendors.PartAudio: {canary: base64.StdEncoding.EncodeToString(canaryWAV), set: sets(part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Audio{
		Audio: &ktmsv1.AudioPart{Data: canaryWAV, Format: "wav"}}}))},
	vendors.PartDocumentData: {set: sets(part(documentPart(""))), canary: base64.StdEncoding.EncodeToString(canaryPDF)},
	vendors.PartDocumentURL: {canary: "https://docs.example/canary.pdf", set: sets(part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{
		Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Url{Url: "https://docs.example/canary.pdf"}}}}))},
	vendors.PartDocumentFile: {canary: "file-canary", set: sets(part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{
		Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_FileId{FileId: "file-canary"}}}}))},
	vendors.PartDocumentName: {base: part(documentPart("")), set: sets(part(documentPart("canary-name.pdf"))), canary: "canary-name"},
	vendors.PartEmbedding: {set: sets(part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Embedding{
		Embedding: &ktmsv1.EmbeddingPart{Model: "m", Vector: []float32{1}}}}))},
	vendors.PartRefusal: {base: answered(), canary: "canary-refusal", set: sets(func(r *ktmsv1.GenerateTextRequest) {
		r.Messages[1].Text = ""
		r.Messages[1].Parts = []*ktmsv1.ContentPart{{Part: &ktmsv1.ContentPart_Refusal{Refusal: "canary-refusal"}}}
	})},
	vendors.PartRaw: {canary: "https://v.example/canary", set: sets(part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_RawJson{
		RawJson: `{"type":"video_url","video_url":{"url":"https://v.example/canary"}}`}}))},
	vendors.PartExtra: {base: part(textPart("t")), param: canaryMember, set: sets(
		func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].Parts[1].ExtraJson = canaryExtra },
		func(r *ktmsv1.GenerateTextRequest) { r.Messages[0].Parts[1].ExtraJson = canaryCache },
	)},

	vendors.ToolCalls:   {base: withTool(), set: sets(called()), canary: "canary-city"},
	vendors.ToolResults: {base: withTool(), set: sets(called()), canary: "canary-result"},
	vendors.ToolCallType: {base: withTool(), canary: "canary free text", set: sets(called(func(call, _ *ktmsv1.Message) {
		call.ToolCalls[0].Type, call.ToolCalls[0].Arguments = "custom", "canary free text"
	}))},
	vendors.ToolCallExtra: {base: both(withTool(), called()), canary: "canary-extra", param: canaryMember, set: sets(func(r *ktmsv1.GenerateTextRequest) {
		r.Messages[1].ToolCalls[0].ExtraJson = canaryExtra
	})},

	vendors.Tools:           {set: sets(withTool(func(t *ktmsv1.Tool) { t.Name = "canary_tool" })), canary: "canary_tool"},
	vendors.ToolDescription: {base: withTool(), set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Tools[0].Description = "canary-description" }), canary: "canary-description"},
	vendors.ToolParameters: {canary: "canary_property", base: withTool(func(t *ktmsv1.Tool) { t.ParametersJson = "" }),
		set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Tools[0].Parameters = canaryStruct() })},
	vendors.ToolParametersJSON: {canary: "canary_property", base: withTool(func(t *ktmsv1.Tool) { t.ParametersJson = "" }),
		set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Tools[0].ParametersJson = canarySchema })},
	vendors.ToolStrict: {base: withTool(), set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Tools[0].Strict = new(true) }), canary: `"strict":true`},
	vendors.ToolRaw: {canary: "canary_custom", set: sets(func(r *ktmsv1.GenerateTextRequest) {
		r.Tools = append(r.Tools, &ktmsv1.Tool{RawJson: `{"type":"custom","custom":{"name":"canary_custom"}}`})
	})},
	vendors.ToolExtra: {base: withTool(), param: canaryMember, set: sets(
		func(r *ktmsv1.GenerateTextRequest) { r.Tools[0].ExtraJson = canaryExtra },
		func(r *ktmsv1.GenerateTextRequest) { r.Tools[0].ExtraJson = canaryCache },
	)},

	vendors.ToolChoiceAuto:     {base: withTool(), set: choice(&ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO}), same: true},
	vendors.ToolChoiceNone:     {base: withTool(), set: choice(&ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE}), canary: "none"},
	vendors.ToolChoiceRequired: {base: withTool(), set: choice(&ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED}), canary: "required"},
	vendors.ToolChoiceFunction: {base: withTool(), canary: `"get_weather"`,
		set: choice(&ktmsv1.ToolChoice{Mode: ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION, FunctionName: "get_weather"})},
	vendors.ToolChoiceRaw: {base: withTool(), canary: "allowed_tools",
		set: choice(&ktmsv1.ToolChoice{RawJson: `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"get_weather"}}]}}`})},

	vendors.ResponseSchema:     {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchema = canaryStruct() }), canary: "canary_property"},
	vendors.ResponseSchemaJSON: {set: sets(schema()), canary: canarySchema},
	vendors.SchemaName:         {base: schema(), set: sets(schema(func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchemaName = "canary_name" })), canary: "canary_name"},
	vendors.SchemaDescription:  {base: schema(), set: sets(schema(func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchemaDescription = "canary-description" })), canary: "canary-description"},
	vendors.SchemaStrict: {base: schema(), same: true, set: sets(schema(func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchemaStrict = new(true) }),
		schema(func(r *ktmsv1.GenerateTextRequest) { r.ResponseSchemaStrict = new(false) }))},
	vendors.JSONObject: {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.JsonObject = true }), canary: "json_object"},

	vendors.MaxOutputTokens:  {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.MaxOutputTokens = 4321 }), canary: "4321"},
	vendors.Temperature:      {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Temperature = new(0.25) }), canary: "0.25"},
	vendors.TopP:             {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.TopP = new(0.7) }), canary: "0.7"},
	vendors.TopK:             {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.TopK = new(int32(1717)) }), canary: "1717"},
	vendors.Stop:             {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Stop = []string{"canary-stop"} }), canary: "canary-stop"},
	vendors.Seed:             {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Seed = new(int64(918273)) }), canary: "918273"},
	vendors.PresencePenalty:  {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.PresencePenalty = new(0.375) }), canary: "0.375"},
	vendors.FrequencyPenalty: {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.FrequencyPenalty = new(0.625) }), canary: "0.625"},
	vendors.LogitBias:        {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.LogitBias = map[string]float64{"1234": -5} }), canary: `"1234"`},
	vendors.Logprobs:         {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Logprobs = new(true) }), canary: "logprobs"},
	vendors.TopLogprobs: {canary: "7", base: func(r *ktmsv1.GenerateTextRequest) { r.Logprobs = new(true) },
		set: sets(func(r *ktmsv1.GenerateTextRequest) { r.TopLogprobs = new(int32(7)) })},
	vendors.N:                  {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.N = new(int32(3)) }), canary: "3"},
	vendors.ParallelToolCalls:  {base: withTool(), set: sets(func(r *ktmsv1.GenerateTextRequest) { r.ParallelToolCalls = new(false) }), canary: "parallel_tool_calls"},
	vendors.Verbosity:          {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.Verbosity = "low" }), canary: `"low"`},
	vendors.ServiceTier:        {set: tiers("flex", "priority", "default", "auto"), canary: "tier"},
	vendors.ReasoningEffort:    {set: efforts("low", "medium", "high")},
	vendors.PromptCacheKey:     {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.PromptCacheKey = "canary-bucket" }), canary: "canary-bucket"},
	vendors.EnableGoogleSearch: {set: sets(func(r *ktmsv1.GenerateTextRequest) { r.EnableGoogleSearch = true }), canary: "oogle"},
	vendors.ExtraJSON: {param: canaryMember, set: sets(
		func(r *ktmsv1.GenerateTextRequest) { r.ExtraJson = canaryExtra },
		func(r *ktmsv1.GenerateTextRequest) { r.ExtraJson = `{"safe_prompt":true}` },
	)},
}

func tiers(names ...string) (all []edit) {
	for _, name := range names {
		all = append(all, func(r *ktmsv1.GenerateTextRequest) { r.ServiceTier = name })
	}
	return all
}

func efforts(names ...string) (all []edit) {
	for _, name := range names {
		all = append(all, func(r *ktmsv1.GenerateTextRequest) { r.ReasoningEffort = name })
	}
	return all
}

// ProbedElsewhere are the fields that have cases of their own.
var probedElsewhere = []vendors.Field{vendors.MessageOpaque, vendors.BetaHeaders}

// checkFields proves each row of the dialect's table.
func checkFields(f *fixture) {
	table := f.vendor.Fields(f.target.Vendor, f.target.Model)
	if missing := table.Missing(); len(missing) > 0 {
		f.Errorf("the table says nothing of %v", missing)
	}
	for field := range maps.Keys(table) {
		if !slices.Contains(vendors.Fields(), field) {
			f.Errorf("the table knows a field %q that is none", field)
		}
	}
	for _, field := range vendors.Fields() {
		if slices.Contains(probedElsewhere, field) {
			continue
		}
		p, known := probes[field]
		if !known {
			f.Errorf("no probe for %s", field)
			continue
		}
		f.Run(string(field), func(t *testing.T) { newFixture(t, f.Subject).probe(field, p, table[field].How) })
	}
}

func (f *fixture) probe(field vendors.Field, p probe, how vendors.Carriage) {
	if p.param == "" {
		p.param = field.Param()
	}
	build := func(edits ...edit) *ktmsv1.GenerateTextRequest {
		r := request()
		for _, e := range append([]edit{p.base}, edits...) {
			if e != nil {
				e(r)
			}
		}
		return r
	}
	plain, _, err := f.sent(build())
	if err != nil {
		f.Fatalf("without the field: %v", err)
	}
	carried := false
	for i, set := range p.set {
		with, dropped, err := f.sent(build(set))
		changed := !bytes.Equal(plain, with)
		param := p.param
		if param == canaryMember && len(dropped) > 0 {
			param = dropped[0] // each further member has a name of its own
		}
		switch how {
		case vendors.Refused:
			f.wants(err, vendors.Unsupported)
		case vendors.Dropped:
			if err != nil || changed || !slices.Contains(dropped, param) {
				f.Errorf("value %d: dropped %v, changed %v, %v:\n%s", i, dropped, changed, err, with)
			}
			_, _, err = f.sent(build(set, func(r *ktmsv1.GenerateTextRequest) { r.StrictParams = true }))
			f.wants(err, vendors.Unsupported)
		default:
			if err != nil {
				f.Fatalf("value %d: %v", i, err)
			}
			if changed && !slices.Contains(dropped, param) || p.same {
				carried = true
			}
			if !changed && !p.same && !slices.Contains(dropped, param) {
				f.Errorf("value %d is lost without a word", i)
			}
			if how == vendors.Native && changed && !strings.Contains(string(with), p.canary) {
				f.Errorf("value %d does not arrive as it is: no %s in\n%s", i, p.canary, with)
			}
		}
	}
	if (how == vendors.Native || how == vendors.Translated) && !carried {
		f.Errorf("the table says %v, but nothing arrives", how)
	}
}

// sent returns the body that a request becomes, which the vendor has to take, and what was dropped of it.
func (f *fixture) sent(req *ktmsv1.GenerateTextRequest) (body []byte, dropped []string, err error) {
	f.Helper()
	f.up.Reply(f.answers(f.Script.Body(hello())))
	before := len(f.up.Calls())
	answer, err := f.generate(f.Context(), req)
	calls := f.up.Calls()
	if len(calls) == before {
		if err == nil {
			f.Error("an answer without a call")
		}
		return nil, nil, err
	}
	call := calls[before]
	if f.Script.Check != nil {
		if wrong := f.Script.Check(call); wrong != "" {
			f.Errorf("the vendor would refuse this: %s\n%.3000s", wrong, call.Body)
		}
	}
	if answer != nil {
		dropped = answer.Head.Dropped
	}
	return call.Body, dropped, err
}
