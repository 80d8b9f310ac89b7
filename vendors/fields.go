package vendors

import (
	"maps"
	"slices"
)

// Field is a field of GenerateTextRequest that concerns the vendor, by its path in the proto. A value of an enum stands
// as a field of its own where dialects treat the values differently.
type Field string

// The fields, in the order of the documentation.
const (
	BaseSystemInstruction Field = "base_system_instruction"
	RequestInstruction    Field = "request_instruction"

	SystemTurns      Field = "messages.role.system"
	MessageText      Field = "messages.text"
	MessageName      Field = "messages.name"
	MessageReasoning Field = "messages.reasoning"
	MessageRefusal   Field = "messages.refusal"
	MessageOpaque    Field = "messages.opaque"
	MessageExtra     Field = "messages.extra_json"

	PartText         Field = "messages.parts.text"
	PartImageURL     Field = "messages.parts.image.url"
	PartImageData    Field = "messages.parts.image.data"
	PartImageDetail  Field = "messages.parts.image.detail"
	PartAudio        Field = "messages.parts.audio"
	PartDocumentData Field = "messages.parts.document.data"
	PartDocumentURL  Field = "messages.parts.document.url"
	PartDocumentFile Field = "messages.parts.document.file_id"
	PartDocumentName Field = "messages.parts.document.filename"
	PartEmbedding    Field = "messages.parts.embedding"
	PartRefusal      Field = "messages.parts.refusal"
	PartRaw          Field = "messages.parts.raw_json"
	PartExtra        Field = "messages.parts.extra_json"

	ToolCalls     Field = "messages.tool_calls"
	ToolCallType  Field = "messages.tool_calls.type"
	ToolCallExtra Field = "messages.tool_calls.extra_json"
	ToolResults   Field = "messages.tool_call_id"

	Tools              Field = "tools"
	ToolDescription    Field = "tools.description"
	ToolParameters     Field = "tools.parameters"
	ToolParametersJSON Field = "tools.parameters_json"
	ToolStrict         Field = "tools.strict"
	ToolRaw            Field = "tools.raw_json"
	ToolExtra          Field = "tools.extra_json"

	ToolChoiceAuto     Field = "tool_choice.auto"
	ToolChoiceNone     Field = "tool_choice.none"
	ToolChoiceRequired Field = "tool_choice.required"
	ToolChoiceFunction Field = "tool_choice.function_name"
	ToolChoiceRaw      Field = "tool_choice.raw_json"

	ResponseSchema     Field = "response_schema"
	ResponseSchemaJSON Field = "response_schema_json"
	SchemaName         Field = "response_schema_name"
	SchemaDescription  Field = "response_schema_description"
	SchemaStrict       Field = "response_schema_strict"
	JSONObject         Field = "json_object"

	MaxOutputTokens    Field = "max_output_tokens"
	Temperature        Field = "temperature"
	TopP               Field = "top_p"
	TopK               Field = "top_k"
	Stop               Field = "stop"
	Seed               Field = "seed"
	PresencePenalty    Field = "presence_penalty"
	FrequencyPenalty   Field = "frequency_penalty"
	LogitBias          Field = "logit_bias"
	Logprobs           Field = "logprobs"
	TopLogprobs        Field = "top_logprobs"
	N                  Field = "n"
	ParallelToolCalls  Field = "parallel_tool_calls"
	Verbosity          Field = "verbosity"
	ServiceTier        Field = "service_tier"
	ReasoningEffort    Field = "reasoning_effort"
	PromptCacheKey     Field = "prompt_cache_key"
	EnableGoogleSearch Field = "enable_google_search"
	ExtraJSON          Field = "extra_json"
	BetaHeaders        Field = "beta_headers"
)

// fields lists every Field with the name that callers of the OpenAI API know it by. That name is what dropped_params,
// X-KTMS-Dropped-Params and the param of an error say.
var fields = []struct {
	field Field
	param string
}{
	{BaseSystemInstruction, "base_system_instruction"},
	{RequestInstruction, "request_instruction"},
	{SystemTurns, "messages.system"},
	{MessageText, "messages.content"},
	{MessageName, "messages.name"},
	{MessageReasoning, "reasoning_content"},
	{MessageRefusal, "messages.refusal"},
	{MessageOpaque, "ktms_opaque"},
	{MessageExtra, "messages.extra"},
	{PartText, "text"},
	{PartImageURL, "image_url"},
	{PartImageData, "image_url"},
	{PartImageDetail, "image_url.detail"},
	{PartAudio, "input_audio"},
	{PartDocumentData, "file.file_data"},
	{PartDocumentURL, "file.file_data"},
	{PartDocumentFile, "file.file_id"},
	{PartDocumentName, "file.filename"},
	{PartEmbedding, "embedding"},
	{PartRefusal, "refusal"},
	{PartRaw, "messages.content"},
	{PartExtra, "messages.content.extra"},
	{ToolCalls, "tool_calls"},
	{ToolCallType, "tool_calls.custom"},
	{ToolCallExtra, "tool_calls.extra"},
	{ToolResults, "tool_call_id"},
	{Tools, "tools"},
	{ToolDescription, "tools.description"},
	{ToolParameters, "tools.parameters"},
	{ToolParametersJSON, "tools.parameters"},
	{ToolStrict, "tools.strict"},
	{ToolRaw, "tools"},
	{ToolExtra, "tools.extra"},
	{ToolChoiceAuto, "tool_choice"},
	{ToolChoiceNone, "tool_choice"},
	{ToolChoiceRequired, "tool_choice"},
	{ToolChoiceFunction, "tool_choice"},
	{ToolChoiceRaw, "tool_choice"},
	{ResponseSchema, "response_format"},
	{ResponseSchemaJSON, "response_format"},
	{SchemaName, "response_format.name"},
	{SchemaDescription, "response_format.description"},
	{SchemaStrict, "response_format.strict"},
	{JSONObject, "response_format"},
	{MaxOutputTokens, "max_tokens"},
	{Temperature, "temperature"},
	{TopP, "top_p"},
	{TopK, "top_k"},
	{Stop, "stop"},
	{Seed, "seed"},
	{PresencePenalty, "presence_penalty"},
	{FrequencyPenalty, "frequency_penalty"},
	{LogitBias, "logit_bias"},
	{Logprobs, "logprobs"},
	{TopLogprobs, "top_logprobs"},
	{N, "n"},
	{ParallelToolCalls, "parallel_tool_calls"},
	{Verbosity, "verbosity"},
	{ServiceTier, "service_tier"},
	{ReasoningEffort, "reasoning_effort"},
	{PromptCacheKey, "prompt_cache_key"},
	{EnableGoogleSearch, "enable_google_search"},
	{ExtraJSON, "extra_json"},
	{BetaHeaders, "beta_headers"},
}

// Fields returns every field, in the order of the documentation.
func Fields() []Field {
	all := make([]Field, 0, len(fields))
	for _, f := range fields {
		all = append(all, f.field)
	}
	return all
}

// Param is the field's name for callers of the OpenAI API.
func (f Field) Param() string {
	for _, known := range fields {
		if known.field == f {
			return known.param
		}
	}
	return string(f)
}

// Carriage says what becomes of a request field on its way to a vendor.
type Carriage int

// The four ways. The zero value is none of them: a table that forgets a field is a mistake.
const (
	_ Carriage = iota
	// Native: the vendor has the same field; the value arrives as it is.
	Native
	// Translated: the vendor has something that means the same, or nearly; the note says what.
	Translated
	// Dropped: the vendor has nothing like it. The call goes on without, and says so; a strict request is refused.
	Dropped
	// Refused: going on without would answer another question. The call moves to the next candidate.
	Refused
)

var carriageNames = [...]string{"missing", "native", "translated", "dropped", "refused"}

func (c Carriage) String() string { return carriageNames[c] }

// Support is how a dialect carries one field, with a note for people where the word alone says too little.
type Support struct {
	How  Carriage
	Note string
}

// Table is how a dialect carries each field. It drives the encoder, through a Ledger, and is what the documentation
// and GET /v1/capabilities show.
type Table map[Field]Support

// With returns a copy with some rows replaced.
func (t Table) With(rows Table) Table {
	out := maps.Clone(t)
	maps.Copy(out, rows)
	return out
}

// Carries reports whether the field reaches the vendor.
func (t Table) Carries(f Field) bool { return t[f].How == Native || t[f].How == Translated }

// Missing lists the fields that the table says nothing of, in order.
func (t Table) Missing() []Field {
	return slices.DeleteFunc(Fields(), func(f Field) bool { return t[f].How != 0 })
}
