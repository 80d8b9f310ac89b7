package anthropic

import (
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// Fields implements vendors.Vendor.
func (v *Vendor) Fields(_, model string) vendors.Table { return fieldsOf(model) }

// fieldsOf is the table of one model.
func fieldsOf(model string) vendors.Table {
	g, _ := claude.GenerationOf(model)
	rows := vendors.Table{}
	if g.Sampling {
		rows[vendors.Temperature] = vendors.Support{How: vendors.Translated, Note: "0 to 1; more becomes 1"}
		rows[vendors.TopP] = vendors.Support{How: vendors.Native}
		rows[vendors.TopK] = vendors.Support{How: vendors.Native}
		if g.OneSampler {
			rows[vendors.TopP] = vendors.Support{How: vendors.Native, Note: "dropped beside temperature"}
		}
	}
	if !g.Forced {
		asked := vendors.Support{How: vendors.Translated, Note: "asked for in the system text; Keystone checks answers in one piece"}
		rows[vendors.ToolChoiceRequired], rows[vendors.ToolChoiceFunction] = asked, asked
	}
	switch g.Style {
	case claude.Never:
		rows[vendors.ReasoningEffort] = vendors.Support{How: vendors.Dropped, Note: "the model does not think"}
	case claude.Budgeted:
		rows[vendors.ReasoningEffort] = vendors.Support{How: vendors.Translated, Note: "a budget of thinking tokens; none switches thinking off"}
	case claude.OnRequest, claude.Always:
	}
	if !g.Schemas {
		said := vendors.Support{How: vendors.Translated, Note: "said in the system text, not enforced"}
		rows[vendors.ResponseSchema], rows[vendors.ResponseSchemaJSON] = said, said
		rows[vendors.ToolStrict] = vendors.Support{How: vendors.Dropped}
	}
	return newest.With(rows)
}

// newest is the table of the current models.
var newest = vendors.Table{
	vendors.BaseSystemInstruction: {How: vendors.Native, Note: "system"},
	vendors.RequestInstruction:    {How: vendors.Native, Note: "system; the user's turn if there is no other"},

	vendors.SystemTurns:      {How: vendors.Translated, Note: "leading ones: system; later ones: marked text in a user turn"},
	vendors.MessageText:      {How: vendors.Native},
	vendors.MessageName:      {How: vendors.Dropped},
	vendors.MessageReasoning: {How: vendors.Dropped, Note: "only signed thinking comes back, in opaque"},
	vendors.MessageRefusal:   {How: vendors.Translated, Note: "text"},
	vendors.MessageOpaque:    {How: vendors.Native, Note: "thinking blocks"},
	vendors.MessageExtra:     {How: vendors.Translated, Note: "cache_control, and is_error of a tool's result; others are dropped"},

	vendors.PartText:         {How: vendors.Native},
	vendors.PartImageURL:     {How: vendors.Native, Note: "https: and data:"},
	vendors.PartImageData:    {How: vendors.Native, Note: "JPEG, PNG, GIF, WebP"},
	vendors.PartImageDetail:  {How: vendors.Dropped},
	vendors.PartAudio:        {How: vendors.Refused},
	vendors.PartDocumentData: {How: vendors.Native, Note: "PDF and text"},
	vendors.PartDocumentURL:  {How: vendors.Native, Note: "https: and data:"},
	vendors.PartDocumentFile: {How: vendors.Native, Note: "needs the beta header of the Files API"},
	vendors.PartDocumentName: {How: vendors.Translated, Note: "title"},
	vendors.PartEmbedding:    {How: vendors.Refused},
	vendors.PartRefusal:      {How: vendors.Translated, Note: "text"},
	vendors.PartRaw:          {How: vendors.Refused},
	vendors.PartExtra:        {How: vendors.Translated, Note: "cache_control; others are dropped"},

	vendors.ToolCalls:     {How: vendors.Native, Note: "tool_use"},
	vendors.ToolCallType:  {How: vendors.Refused},
	vendors.ToolCallExtra: {How: vendors.Dropped},
	vendors.ToolResults:   {How: vendors.Native, Note: "tool_result"},

	vendors.Tools:              {How: vendors.Native},
	vendors.ToolDescription:    {How: vendors.Native},
	vendors.ToolParameters:     {How: vendors.Native, Note: "input_schema"},
	vendors.ToolParametersJSON: {How: vendors.Native, Note: "input_schema"},
	vendors.ToolStrict:         {How: vendors.Native, Note: "keywords that the vendor does not enforce move into descriptions"},
	vendors.ToolRaw:            {How: vendors.Refused, Note: "the vendor's own tools are billed apart from tokens"},
	vendors.ToolExtra:          {How: vendors.Translated, Note: "cache_control, input_examples; others are dropped"},

	vendors.ToolChoiceAuto:     {How: vendors.Native},
	vendors.ToolChoiceNone:     {How: vendors.Native},
	vendors.ToolChoiceRequired: {How: vendors.Translated, Note: "any"},
	vendors.ToolChoiceFunction: {How: vendors.Translated, Note: "tool"},
	vendors.ToolChoiceRaw:      {How: vendors.Refused},

	vendors.ResponseSchema:     {How: vendors.Native, Note: "output_config.format"},
	vendors.ResponseSchemaJSON: {How: vendors.Native, Note: "output_config.format"},
	vendors.SchemaName:         {How: vendors.Translated, Note: "the schema's title, if it has none"},
	vendors.SchemaDescription:  {How: vendors.Translated, Note: "at the head of the schema's own"},
	vendors.SchemaStrict:       {How: vendors.Translated, Note: "a schema that the vendor takes is enforced in any case"},
	vendors.JSONObject:         {How: vendors.Translated, Note: "a sentence in the system text"},

	vendors.MaxOutputTokens:    {How: vendors.Native, Note: "always sent, since the vendor demands it"},
	vendors.Temperature:        {How: vendors.Dropped, Note: "the vendor takes 1 alone"},
	vendors.TopP:               {How: vendors.Dropped, Note: "the vendor takes its default alone"},
	vendors.TopK:               {How: vendors.Dropped},
	vendors.Stop:               {How: vendors.Translated, Note: "stop_sequences, without those of white space"},
	vendors.Seed:               {How: vendors.Dropped},
	vendors.PresencePenalty:    {How: vendors.Dropped},
	vendors.FrequencyPenalty:   {How: vendors.Dropped},
	vendors.LogitBias:          {How: vendors.Dropped},
	vendors.Logprobs:           {How: vendors.Dropped},
	vendors.TopLogprobs:        {How: vendors.Dropped},
	vendors.N:                  {How: vendors.Dropped, Note: "one answer only"},
	vendors.ParallelToolCalls:  {How: vendors.Translated, Note: "tool_choice.disable_parallel_tool_use"},
	vendors.Verbosity:          {How: vendors.Dropped},
	vendors.ServiceTier:        {How: vendors.Translated, Note: "auto, and default as standard_only; others are dropped"},
	vendors.ReasoningEffort:    {How: vendors.Translated, Note: "output_config.effort; none only where thinking can be switched off"},
	vendors.PromptCacheKey:     {How: vendors.Dropped},
	vendors.EnableGoogleSearch: {How: vendors.Dropped},
	vendors.ExtraJSON:          {How: vendors.Dropped, Note: "each member under its own name"},
	vendors.BetaHeaders:        {How: vendors.Native, Note: "anthropic-beta"},
}
