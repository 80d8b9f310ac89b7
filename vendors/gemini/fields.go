package gemini

import "github.com/ai-process/ktms/vendors"

// fields is how a 3.x model takes each field; Fields says what differs for others.
var fields = vendors.Table{
	vendors.BaseSystemInstruction: {How: vendors.Native, Note: "systemInstruction"},
	vendors.RequestInstruction:    {How: vendors.Native, Note: "systemInstruction"},

	vendors.SystemTurns: {How: vendors.Translated, Note: "leading ones join systemInstruction, later ones stand in their place " +
		"as a user's text that is marked as an instruction"},
	vendors.MessageText:      {How: vendors.Native},
	vendors.MessageName:      {How: vendors.Dropped},
	vendors.MessageReasoning: {How: vendors.Dropped, Note: "its signature in ktms_opaque carries it; only the text is dropped"},
	vendors.MessageRefusal:   {How: vendors.Translated, Note: "a text of the model"},
	vendors.MessageOpaque:    {How: vendors.Translated, Note: "thoughtSignature of each part"},
	vendors.MessageExtra:     {How: vendors.Dropped},

	vendors.PartText:         {How: vendors.Native},
	vendors.PartImageURL:     {How: vendors.Translated, Note: "https: fileData, data: inlineData"},
	vendors.PartImageData:    {How: vendors.Native, Note: "inlineData"},
	vendors.PartImageDetail:  {How: vendors.Dropped},
	vendors.PartAudio:        {How: vendors.Native, Note: "inlineData"},
	vendors.PartDocumentData: {How: vendors.Native, Note: "inlineData"},
	vendors.PartDocumentURL:  {How: vendors.Translated, Note: "https: fileData, data: inlineData"},
	vendors.PartDocumentFile: {How: vendors.Translated, Note: "fileData.fileUri"},
	vendors.PartDocumentName: {How: vendors.Dropped},
	vendors.PartEmbedding:    {How: vendors.Refused},
	vendors.PartRefusal:      {How: vendors.Translated, Note: "a text part"},
	vendors.PartRaw:          {How: vendors.Refused},
	vendors.PartExtra:        {How: vendors.Dropped},

	vendors.ToolCalls:     {How: vendors.Native, Note: "functionCall"},
	vendors.ToolCallType:  {How: vendors.Refused, Note: "there are no custom tools"},
	vendors.ToolCallExtra: {How: vendors.Dropped},
	vendors.ToolResults:   {How: vendors.Translated, Note: "functionResponse; what is no JSON object goes under output"},

	vendors.Tools:           {How: vendors.Native, Note: "functionDeclarations"},
	vendors.ToolDescription: {How: vendors.Native},
	vendors.ToolParameters: {How: vendors.Translated, Note: "parametersJsonSchema; keywords that it lacks are said in " +
		"descriptions, references are written out"},
	vendors.ToolParametersJSON: {How: vendors.Translated, Note: "as tools.parameters"},
	vendors.ToolStrict:         {How: vendors.Translated, Note: "mode VALIDATED, for all tools of the request"},
	vendors.ToolRaw:            {How: vendors.Refused},
	vendors.ToolExtra:          {How: vendors.Dropped},

	vendors.ToolChoiceAuto:     {How: vendors.Native},
	vendors.ToolChoiceNone:     {How: vendors.Translated, Note: "mode NONE"},
	vendors.ToolChoiceRequired: {How: vendors.Translated, Note: "mode ANY"},
	vendors.ToolChoiceFunction: {How: vendors.Translated, Note: "mode ANY with allowedFunctionNames"},
	vendors.ToolChoiceRaw:      {How: vendors.Refused},

	vendors.ResponseSchema: {How: vendors.Translated, Note: "responseJsonSchema; keywords that it lacks are said in " +
		"descriptions, references are written out"},
	vendors.ResponseSchemaJSON: {How: vendors.Translated, Note: "as response_schema"},
	vendors.SchemaName:         {How: vendors.Translated, Note: "title of the schema, unless it has one"},
	vendors.SchemaDescription:  {How: vendors.Translated, Note: "description of the schema"},
	vendors.SchemaStrict:       {How: vendors.Translated, Note: "a schema is always enforced"},
	vendors.JSONObject:         {How: vendors.Translated, Note: "responseMimeType"},

	vendors.MaxOutputTokens:    {How: vendors.Native},
	vendors.Temperature:        {How: vendors.Native},
	vendors.TopP:               {How: vendors.Native},
	vendors.TopK:               {How: vendors.Native},
	vendors.Stop:               {How: vendors.Native, Note: "the first five"},
	vendors.Seed:               {How: vendors.Native, Note: "its lower 32 bits"},
	vendors.PresencePenalty:    {How: vendors.Native},
	vendors.FrequencyPenalty:   {How: vendors.Native},
	vendors.LogitBias:          {How: vendors.Dropped},
	vendors.Logprobs:           {How: vendors.Translated, Note: "responseLogprobs; the answer's are said in the shape of the OpenAI API"},
	vendors.TopLogprobs:        {How: vendors.Translated, Note: "logprobs"},
	vendors.N:                  {How: vendors.Translated, Note: "candidateCount, up to 8"},
	vendors.ParallelToolCalls:  {How: vendors.Dropped},
	vendors.Verbosity:          {How: vendors.Dropped},
	vendors.ServiceTier:        {How: vendors.Translated, Note: "standard, flex, priority; auto and default are standard"},
	vendors.ReasoningEffort:    {How: vendors.Translated, Note: "thinkingLevel"},
	vendors.PromptCacheKey:     {How: vendors.Dropped, Note: "caching is automatic"},
	vendors.EnableGoogleSearch: {How: vendors.Native, Note: "the tool googleSearch"},
	vendors.ExtraJSON:          {How: vendors.Dropped},
	vendors.BetaHeaders:        {How: vendors.Dropped},
}

// Fields implements vendors.Vendor.
func (v *Vendor) Fields(_, model string) vendors.Table { return tableOf(generationOf(model)) }

func tableOf(g generation) vendors.Table {
	rows := vendors.Table{}
	if !g.sampled {
		for _, field := range []vendors.Field{
			vendors.Temperature, vendors.TopP, vendors.TopK, vendors.PresencePenalty, vendors.FrequencyPenalty,
		} {
			rows[field] = vendors.Support{How: vendors.Dropped, Note: "these models ignore it"}
		}
	}
	switch g.thinking {
	case noThinking:
		rows[vendors.ReasoningEffort] = vendors.Support{How: vendors.Dropped, Note: "the model does not think, or cannot be told how much"}
	case thinkingBudget:
		rows[vendors.ReasoningEffort] = vendors.Support{How: vendors.Translated, Note: "thinkingBudget"}
	}
	if !g.validated {
		rows[vendors.ToolStrict] = vendors.Support{How: vendors.Dropped}
	}
	if !g.together {
		rows[vendors.EnableGoogleSearch] = vendors.Support{How: vendors.Native, Note: "the tool googleSearch, not beside functions"}
		rows[vendors.JSONObject] = vendors.Support{How: vendors.Translated, Note: "responseMimeType; beside functions in words"}
	}
	return fields.With(rows)
}
