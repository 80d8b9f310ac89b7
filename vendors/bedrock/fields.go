package bedrock

import (
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// row is short for one row of a table.
func row(how vendors.Carriage, note string) vendors.Support {
	return vendors.Support{How: how, Note: note}
}

// base is how the dialect carries each field to Claude models. Other families differ in the rows of fieldsOf.
var base = vendors.Table{
	vendors.BaseSystemInstruction: row(vendors.Native, "system"),
	vendors.RequestInstruction:    row(vendors.Native, "system; without any message it is the user's turn"),

	vendors.SystemTurns:      row(vendors.Translated, "leading ones go to system, later ones into the user's turn within <system> marks"),
	vendors.MessageText:      row(vendors.Native, "blank texts are left out; a conversation that ends with the assistant goes on with a short user turn"),
	vendors.MessageName:      row(vendors.Dropped, ""),
	vendors.MessageReasoning: row(vendors.Dropped, "signed reasoning travels in ktms_opaque"),
	vendors.MessageRefusal:   row(vendors.Translated, "text"),
	vendors.MessageOpaque:    row(vendors.Native, "reasoningContent with its signature"),
	vendors.MessageExtra:     row(vendors.Translated, "cache_control becomes a cachePoint, is_error the status of a tool's result; other members are dropped"),

	vendors.PartText:         row(vendors.Native, ""),
	vendors.PartImageURL:     row(vendors.Refused, "data: URLs are carried; the vendor fetches no https: ones, and s3: ones only with the operator's key"),
	vendors.PartImageData:    row(vendors.Native, "png, jpeg, gif, webp"),
	vendors.PartImageDetail:  row(vendors.Dropped, ""),
	vendors.PartAudio:        row(vendors.Refused, "other families than Claude take it"),
	vendors.PartDocumentData: row(vendors.Native, "pdf, csv, doc, docx, xls, xlsx, html, txt, md"),
	vendors.PartDocumentURL:  row(vendors.Refused, "data: URLs are carried; the vendor fetches no https: ones, and s3: ones only with the operator's key"),
	vendors.PartDocumentFile: row(vendors.Refused, "the vendor keeps no files"),
	vendors.PartDocumentName: row(vendors.Translated, "in the characters that the vendor takes, and unique"),
	vendors.PartEmbedding:    row(vendors.Refused, ""),
	vendors.PartRefusal:      row(vendors.Translated, "text"),
	vendors.PartRaw:          row(vendors.Refused, ""),
	vendors.PartExtra:        row(vendors.Translated, "cache_control becomes a cachePoint; other members are dropped"),

	vendors.ToolCalls:     row(vendors.Native, "toolUse; ids that the vendor does not take are rewritten"),
	vendors.ToolCallType:  row(vendors.Refused, ""),
	vendors.ToolCallExtra: row(vendors.Dropped, ""),
	vendors.ToolResults:   row(vendors.Native, "toolResult, in the turn after its call"),

	vendors.Tools:              row(vendors.Native, "names that the vendor does not take are rewritten on the way"),
	vendors.ToolDescription:    row(vendors.Native, ""),
	vendors.ToolParameters:     row(vendors.Native, ""),
	vendors.ToolParametersJSON: row(vendors.Native, "member order and number spelling are kept"),
	vendors.ToolStrict:         row(vendors.Native, "keywords that strict tools cannot have move into descriptions"),
	vendors.ToolRaw:            row(vendors.Refused, ""),
	vendors.ToolExtra:          row(vendors.Translated, "cache_control becomes a cachePoint; other members are dropped"),

	vendors.ToolChoiceAuto:     row(vendors.Native, ""),
	vendors.ToolChoiceNone:     row(vendors.Translated, "tools are left out; where the history holds calls they stay, with an instruction not to call"),
	vendors.ToolChoiceRequired: row(vendors.Translated, "any"),
	vendors.ToolChoiceFunction: row(vendors.Native, "tool"),
	vendors.ToolChoiceRaw:      row(vendors.Refused, ""),

	vendors.ResponseSchema:     row(vendors.Translated, "outputConfig.textFormat"),
	vendors.ResponseSchemaJSON: row(vendors.Translated, "outputConfig.textFormat; keywords that the vendor does not take move into descriptions"),
	vendors.SchemaName:         row(vendors.Native, ""),
	vendors.SchemaDescription:  row(vendors.Native, ""),
	vendors.SchemaStrict:       row(vendors.Translated, "the vendor always follows the schema"),
	vendors.JSONObject:         row(vendors.Translated, "an instruction"),

	vendors.MaxOutputTokens:    row(vendors.Native, ""),
	vendors.Temperature:        row(vendors.Translated, "0 to 1, more becomes 1; Claude models after 4.6 take only 1"),
	vendors.TopP:               row(vendors.Native, "Claude models after 4.6 take only 0.99 and more"),
	vendors.TopK:               row(vendors.Translated, "additionalModelRequestFields of Claude up to 4.6 and of Nova"),
	vendors.Stop:               row(vendors.Native, "Claude models take no blank ones"),
	vendors.Seed:               row(vendors.Dropped, ""),
	vendors.PresencePenalty:    row(vendors.Dropped, ""),
	vendors.FrequencyPenalty:   row(vendors.Dropped, ""),
	vendors.LogitBias:          row(vendors.Dropped, ""),
	vendors.Logprobs:           row(vendors.Dropped, ""),
	vendors.TopLogprobs:        row(vendors.Dropped, ""),
	vendors.N:                  row(vendors.Dropped, "one answer"),
	vendors.ParallelToolCalls:  row(vendors.Dropped, ""),
	vendors.Verbosity:          row(vendors.Dropped, ""),
	vendors.ServiceTier:        row(vendors.Translated, "serviceTier: default, priority, flex, reserved; auto is default"),
	vendors.ReasoningEffort:    row(vendors.Translated, "outputConfig.effort of Claude models, with thinking where it has to be switched on; minimal is low; none only where thinking can be switched off"),
	vendors.PromptCacheKey:     row(vendors.Dropped, ""),
	vendors.EnableGoogleSearch: row(vendors.Dropped, ""),
	vendors.ExtraJSON:          row(vendors.Dropped, "guardrailConfig is carried, and thinking to Claude models"),
	vendors.BetaHeaders:        row(vendors.Dropped, ""),
}

// fieldsOf is the table for one model.
func fieldsOf(id string) vendors.Table {
	m := modelOf(id)
	rows := vendors.Table{}
	if !m.gen.Sampling {
		rows[vendors.Temperature] = row(vendors.Dropped, "the model takes only 1")
		rows[vendors.TopP] = row(vendors.Dropped, "the model takes only 0.99 and more")
		rows[vendors.TopK] = row(vendors.Dropped, "")
	}
	if !m.gen.Forced {
		rows[vendors.ToolChoiceRequired] = row(vendors.Translated, "an instruction: the model cannot be forced")
		rows[vendors.ToolChoiceFunction] = row(vendors.Translated, "an instruction: the model cannot be forced")
	}
	switch {
	case m.gen.Style == claude.Never:
		rows[vendors.ReasoningEffort] = row(vendors.Dropped, "the model does not think")
	case m.gen.Style == claude.Budgeted && !m.gen.Efforts:
		rows[vendors.ReasoningEffort] = row(vendors.Translated, "a budget of thinking tokens; none switches thinking off")
	}
	if !m.gen.Schemas {
		rows[vendors.ToolStrict] = row(vendors.Dropped, "")
		for _, f := range []vendors.Field{vendors.ResponseSchema, vendors.ResponseSchemaJSON} {
			rows[f] = row(vendors.Translated, "an instruction: nobody holds the model to a schema")
		}
		rows[vendors.SchemaName], rows[vendors.SchemaDescription] = row(vendors.Dropped, ""), row(vendors.Dropped, "")
	}
	if !m.claude {
		rows[vendors.ReasoningEffort] = row(vendors.Dropped, "")
		rows[vendors.PartAudio] = row(vendors.Native, "mp3, wav, flac, ogg, opus, m4a, webm, aac, mp4")
		rows[vendors.ExtraJSON] = row(vendors.Dropped, "guardrailConfig is carried")
		for _, f := range []vendors.Field{vendors.MessageExtra, vendors.PartExtra, vendors.ToolExtra} {
			rows[f] = row(vendors.Dropped, "")
		}
		if m.nova {
			rows[vendors.MessageExtra] = row(vendors.Dropped, "is_error of a tool's result is carried")
		}
	}
	if !m.claude && !m.nova {
		rows[vendors.TopK] = row(vendors.Dropped, "")
	}
	return base.With(rows)
}
