package openai

import (
	"strings"

	"github.com/ai-process/ktms/vendors"
)

func rows(how vendors.Carriage, note string, fields ...vendors.Field) vendors.Table {
	t := vendors.Table{}
	for _, f := range fields {
		t[f] = vendors.Support{How: how, Note: note}
	}
	return t
}

// chatAPI is how OpenAI's own chat API takes each field.
var chatAPI = rows(vendors.Native, "", vendors.Fields()...).
	With(rows(vendors.Translated, "as the first system message", vendors.BaseSystemInstruction, vendors.RequestInstruction)).
	With(rows(vendors.Dropped, "the chat API does not take reasoning back", vendors.MessageReasoning)).
	With(rows(vendors.Dropped, "the chat API returns no such state; that of another dialect is left out without a word", vendors.MessageOpaque)).
	With(rows(vendors.Translated, "as a data: URL", vendors.PartImageData, vendors.PartDocumentData)).
	With(rows(vendors.Refused, "documents travel as bytes, as data: URLs or by file id", vendors.PartDocumentURL)).
	With(rows(vendors.Refused, "", vendors.PartEmbedding)).
	With(rows(vendors.Translated, "normalised: additional_properties, nullable", vendors.ToolParameters, vendors.ResponseSchema)).
	With(rows(vendors.Translated, "max_completion_tokens", vendors.MaxOutputTokens)).
	With(rows(vendors.Dropped, "", vendors.TopK, vendors.EnableGoogleSearch)).
	With(rows(vendors.Native, "openai-beta", vendors.BetaHeaders))

// plainTokens: the ceiling keeps its old name.
var plainTokens = rows(vendors.Native, "max_tokens", vendors.MaxOutputTokens)

// noDeveloper: the role is OpenAI's own.
var noDeveloper = rows(vendors.Translated, "a developer turn becomes a system turn", vendors.SystemTurns)

// noBeta: the switches are OpenAI's own.
var noBeta = rows(vendors.Dropped, "", vendors.BetaHeaders)

// tables says how each vendor departs from the chat API.
var tables = map[string]vendors.Table{
	vendors.OpenAI: chatAPI,
	vendors.Azure:  chatAPI,
	vendors.DeepSeek: chatAPI.With(plainTokens).With(noBeta).With(noDeveloper).
		With(rows(vendors.Dropped, "", vendors.Seed, vendors.N, vendors.LogitBias, vendors.ParallelToolCalls, vendors.Verbosity,
			vendors.ServiceTier, vendors.PromptCacheKey)).
		With(rows(vendors.Native, "reasoning_content", vendors.MessageReasoning)).
		With(rows(vendors.Translated, "any JSON is asked for, with the schema in the prompt; Keystone checks the answer",
			vendors.ResponseSchema, vendors.ResponseSchemaJSON, vendors.SchemaName, vendors.SchemaDescription, vendors.SchemaStrict)).
		With(rows(vendors.Translated, "none becomes thinking disabled", vendors.ReasoningEffort)),
	vendors.Groq: chatAPI.With(noBeta).
		With(rows(vendors.Dropped, "", vendors.N, vendors.LogitBias, vendors.Logprobs, vendors.TopLogprobs, vendors.PresencePenalty,
			vendors.Verbosity, vendors.PromptCacheKey)).
		With(rows(vendors.Native, "reasoning", vendors.MessageReasoning)),
	vendors.Mistral: chatAPI.With(plainTokens).With(noBeta).
		With(rows(vendors.Dropped, "", vendors.LogitBias, vendors.Logprobs, vendors.TopLogprobs, vendors.Verbosity)).
		With(rows(vendors.Translated, "random_seed", vendors.Seed)).
		With(noDeveloper).
		With(rows(vendors.Translated, "ids become nine letters and digits", vendors.ToolCalls, vendors.ToolResults)).
		With(rows(vendors.Translated, "only prefix travels", vendors.MessageExtra)).
		With(rows(vendors.Dropped, "except of a tool's turn", vendors.MessageName)).
		With(rows(vendors.Translated, "a text", vendors.MessageRefusal, vendors.PartRefusal)).
		With(rows(vendors.Dropped, "", vendors.PartExtra, vendors.ToolExtra, vendors.ToolCallExtra)).
		With(rows(vendors.Translated, "only members that the vendor knows travel", vendors.ExtraJSON)),
	vendors.Ollama: compatibleServer,
}

// compatibleServer is any other server, the engines of the local pool among them. It gets everything; what Ollama takes
// and ignores is reported once the answer shows that it is Ollama.
var compatibleServer = chatAPI.With(plainTokens).With(noBeta).With(noDeveloper).
	With(rows(vendors.Native, "reasoning_content and reasoning", vendors.MessageReasoning)).
	With(rows(vendors.Native, "Ollama itself ignores it", ollamaIgnores...))

var ollamaIgnores = []vendors.Field{
	vendors.TopK, vendors.N, vendors.LogitBias, vendors.ToolChoiceAuto, vendors.ToolChoiceNone, vendors.ToolChoiceRequired,
	vendors.ToolChoiceFunction, vendors.ToolChoiceRaw, vendors.ParallelToolCalls, vendors.Verbosity, vendors.ServiceTier,
	vendors.PromptCacheKey,
}

func tableOf(vendor string) vendors.Table {
	if t, ok := tables[vendor]; ok {
		return t
	}
	return compatibleServer
}

// Fields implements vendors.Vendor. All models of a vendor are alike in this dialect.
func (v *Vendor) Fields(vendor, _ string) vendors.Table { return tableOf(vendor) }

// refusedExtras are request members that ktms.v1 has no field for and that a vendor answers with an error.
var refusedExtras = map[string][]string{
	vendors.Groq: {"modalities", "audio", "prediction", "web_search_options"},
}

// mistralTakes are the only members that Mistral takes: it answers any other with an error.
var mistralTakes = []string{
	"model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed", "response_format",
	"tools", "tool_choice", "parallel_tool_calls", "presence_penalty", "frequency_penalty", "n", "prediction",
	"reasoning_effort", "prompt_mode", "metadata", "guardrails", "prompt_cache_key", "service_tier", "safe_prompt",
}

// takesExtra reports whether a vendor takes a member of extra_json.
func (e *encoder) takesExtra(name string) bool {
	if e.target.Vendor == vendors.Mistral {
		return isOneOf(name, mistralTakes)
	}
	if isOneOf(name, refusedExtras[e.target.Vendor]) {
		return false
	}
	for _, f := range vendors.Fields() { // a field of ours under its wire name, which may stand in extra_json too
		if isMember(f) && strings.EqualFold(f.Param(), name) && !e.table.Carries(f) {
			return false
		}
	}
	return true
}

// isMember reports whether a field is a member of the request itself, rather than of a message or a tool in it.
func isMember(f vendors.Field) bool {
	return !strings.HasPrefix(string(f), "messages.") && !strings.HasPrefix(string(f), "tools.")
}
