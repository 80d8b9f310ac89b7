package openaiapi

import "strconv"

// AppendJSON appends the request: known members in the order of the struct, then Extra.
func (r *ChatRequest) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	dst = AppendString(key(dst, "model"), r.Model)
	if r.Messages != nil {
		dst = append(key(dst, "messages"), '[')
		for i := range r.Messages {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.Messages[i].AppendJSON(dst)
		}
		dst = append(dst, ']')
	}
	dst = intMember(dst, "max_tokens", r.MaxTokens)
	dst = intMember(dst, "max_completion_tokens", r.MaxCompletionTokens)
	dst = numberMember(dst, "temperature", r.Temperature)
	dst = numberMember(dst, "top_p", r.TopP)
	dst = intMember(dst, "top_k", r.TopK)
	dst = numberMember(dst, "presence_penalty", r.PresencePenalty)
	dst = numberMember(dst, "frequency_penalty", r.FrequencyPenalty)
	if r.Stop != nil {
		dst = r.Stop.appendJSON(key(dst, "stop"))
	}
	dst = intMember(dst, "seed", r.Seed)
	if r.LogitBias != nil {
		dst = append(key(dst, "logit_bias"), '{')
		for i, b := range r.LogitBias {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, b.Token), ':')
			dst = AppendNumber(dst, b.Bias)
		}
		dst = append(dst, '}')
	}
	dst = boolMember(dst, "logprobs", r.Logprobs)
	dst = intMember(dst, "top_logprobs", r.TopLogprobs)
	dst = intMember(dst, "n", r.N)
	dst = boolMember(dst, "parallel_tool_calls", r.ParallelToolCalls)
	dst = stringMember(dst, "verbosity", r.Verbosity)
	dst = stringMember(dst, "service_tier", r.ServiceTier)
	dst = stringMember(dst, "reasoning_effort", r.ReasoningEffort)
	dst = stringMember(dst, "prompt_cache_key", r.PromptCacheKey)
	dst = boolMember(dst, "stream", r.Stream)
	if o := r.StreamOptions; o != nil {
		dst = boolMember(append(key(dst, "stream_options"), '{'), "include_usage", o.IncludeUsage)
		dst = append(o.Extra.appendTo(dst), '}')
	}
	if r.ResponseFormat != nil {
		dst = r.ResponseFormat.appendJSON(key(dst, "response_format"))
	}
	if r.Tools != nil {
		dst = append(key(dst, "tools"), '[')
		for i := range r.Tools {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.Tools[i].appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	if r.ToolChoice != nil {
		dst = r.ToolChoice.appendJSON(key(dst, "tool_choice"))
	}
	return append(r.Extra.appendTo(dst), '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (r *ChatRequest) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

func (s *Stop) appendJSON(dst []byte) []byte {
	if s.Bare && len(s.Strings) == 1 {
		return AppendString(dst, s.Strings[0])
	}
	dst = append(dst, '[')
	for i, text := range s.Strings {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, text)
	}
	return append(dst, ']')
}

func (f *ResponseFormat) appendJSON(dst []byte) []byte {
	dst = stringMember(append(dst, '{'), "type", f.Type)
	if s := f.JSONSchema; s != nil {
		dst = stringMember(append(key(dst, "json_schema"), '{'), "name", s.Name)
		dst = stringMember(dst, "description", s.Description)
		dst = rawMember(dst, "schema", s.Schema)
		dst = boolMember(dst, "strict", s.Strict)
		dst = append(s.Extra.appendTo(dst), '}')
	}
	return append(f.Extra.appendTo(dst), '}')
}

func (t *Tool) appendJSON(dst []byte) []byte {
	if t.Raw != nil {
		return append(dst, t.Raw...)
	}
	dst = stringMember(append(dst, '{'), "type", t.Type)
	if f := t.Function; f != nil {
		dst = AppendString(append(dst, `,"function":{"name":`...), f.Name)
		dst = stringMember(dst, "description", f.Description)
		dst = rawMember(dst, "parameters", f.Parameters)
		dst = boolMember(dst, "strict", f.Strict)
		dst = append(f.Extra.appendTo(dst), '}')
	}
	return append(t.Extra.appendTo(dst), '}')
}

func (c *ToolChoice) appendJSON(dst []byte) []byte {
	switch {
	case c.Raw != nil:
		return append(dst, c.Raw...)
	case c.Function != "":
		dst = AppendString(append(dst, `{"type":"function","function":{"name":`...), c.Function)
		return append(dst, "}}"...)
	}
	return AppendString(dst, c.Mode)
}

// AppendJSON appends the message. The role is left out when it is empty, as in most deltas.
func (m *Message) AppendJSON(dst []byte) []byte {
	dst = stringMember(append(dst, '{'), "role", m.Role)
	if m.Content.Kind != ContentAbsent {
		dst = m.Content.appendJSON(key(dst, "content"))
	}
	dst = stringMember(dst, "reasoning_content", m.ReasoningContent)
	dst = stringMember(dst, "reasoning", m.Reasoning)
	dst = stringMember(dst, "refusal", m.Refusal)
	dst = stringMember(dst, "name", m.Name)
	if m.ToolCalls != nil {
		dst = append(key(dst, "tool_calls"), '[')
		for i := range m.ToolCalls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.ToolCalls[i].appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	dst = stringMember(dst, "tool_call_id", m.ToolCallID)
	return append(m.Extra.appendTo(dst), '}')
}

func (c *Content) appendJSON(dst []byte) []byte {
	switch c.Kind {
	case ContentText:
		return AppendString(dst, c.Text)
	case ContentParts:
		dst = append(dst, '[')
		for i := range c.Parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = c.Parts[i].appendJSON(dst)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

func (p *Part) appendJSON(dst []byte) []byte {
	if p.Raw != nil {
		return append(dst, p.Raw...)
	}
	dst = AppendString(append(dst, `{"type":`...), p.Type)
	switch payloadOf(p.Type) {
	case partText:
		dst = AppendString(key(dst, "text"), p.Text)
	case partRefusal:
		dst = AppendString(key(dst, "refusal"), p.Refusal)
	case partImageURL:
		if p.ImageURL.Bare {
			dst = AppendString(key(dst, "image_url"), p.ImageURL.URL)
			break
		}
		dst = AppendString(append(key(dst, "image_url"), `{"url":`...), p.ImageURL.URL)
		dst = stringMember(dst, "detail", p.ImageURL.Detail)
		dst = append(p.ImageURL.Extra.appendTo(dst), '}')
	case partInputAudio:
		dst = AppendString(append(key(dst, "input_audio"), `{"data":`...), p.InputAudio.Data)
		dst = stringMember(dst, "format", p.InputAudio.Format)
		dst = append(p.InputAudio.Extra.appendTo(dst), '}')
	case partFile:
		dst = stringMember(append(key(dst, "file"), '{'), "file_id", p.File.FileID)
		dst = stringMember(dst, "file_data", p.File.FileData)
		dst = stringMember(dst, "filename", p.File.Filename)
		dst = append(p.File.Extra.appendTo(dst), '}')
	}
	return append(p.Extra.appendTo(dst), '}')
}

func (c *ToolCall) appendJSON(dst []byte) []byte {
	dst = intMember(append(dst, '{'), "index", c.Index)
	dst = stringMember(dst, "id", c.ID)
	dst = stringMember(dst, "type", c.Type)
	if f := c.Function; f != nil {
		dst = stringMember(append(key(dst, "function"), '{'), "name", f.Name)
		dst = AppendString(key(dst, "arguments"), f.Arguments)
		dst = append(f.Extra.appendTo(dst), '}')
	}
	if u := c.Custom; u != nil {
		dst = stringMember(append(key(dst, "custom"), '{'), "name", u.Name)
		dst = AppendString(key(dst, "input"), u.Input)
		dst = append(u.Extra.appendTo(dst), '}')
	}
	return append(c.Extra.appendTo(dst), '}')
}

// AppendJSON appends the answer.
func (r *ChatResponse) AppendJSON(dst []byte) []byte {
	dst = appendHead(dst, r.ID, r.Object, r.Created, r.Model)
	dst = append(key(dst, "choices"), '[')
	for i := range r.Choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.Choices[i].appendJSON(dst)
	}
	dst = append(dst, ']')
	return append(r.Extra.appendTo(appendTail(dst, r.Usage, r.ServiceTier, r.SystemFingerprint, r.Error)), '}')
}

func (c *Choice) appendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), c.Index, 10)
	dst = c.Message.AppendJSON(append(dst, `,"message":`...))
	dst = rawMember(dst, "logprobs", c.Logprobs)
	dst = appendNullable(key(dst, "finish_reason"), c.FinishReason)
	return append(c.Extra.appendTo(dst), '}')
}

// AppendJSON appends the chunk. It never writes "error" unless there is one: clients take the mere key for a failure.
func (c *ChatChunk) AppendJSON(dst []byte) []byte {
	dst = appendHead(dst, c.ID, c.Object, c.Created, c.Model)
	dst = append(key(dst, "choices"), '[')
	for i := range c.Choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.Choices[i].appendJSON(dst)
	}
	dst = append(dst, ']')
	return append(c.Extra.appendTo(appendTail(dst, c.Usage, c.ServiceTier, c.SystemFingerprint, c.Error)), '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (c *ChatChunk) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// AppendEvent appends the chunk as one event of a stream: "data: {…}\n\n".
func (c *ChatChunk) AppendEvent(dst []byte) []byte {
	return append(c.AppendJSON(append(dst, "data: "...)), "\n\n"...)
}

// DoneEvent is the event that ends a stream.
const DoneEvent = "data: [DONE]\n\n"

func (c *ChunkChoice) appendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), c.Index, 10)
	dst = c.Delta.AppendJSON(append(dst, `,"delta":`...))
	dst = rawMember(dst, "logprobs", c.Logprobs)
	dst = appendNullable(key(dst, "finish_reason"), c.FinishReason)
	return append(c.Extra.appendTo(dst), '}')
}

func appendHead(dst []byte, id, object string, created int64, model string) []byte {
	dst = AppendString(append(dst, `{"id":`...), id)
	dst = AppendString(key(dst, "object"), object)
	dst = strconv.AppendInt(key(dst, "created"), created, 10)
	return AppendString(key(dst, "model"), model)
}

func appendTail(dst []byte, u *Usage, tier, fingerprint string, e *ErrorBody) []byte {
	if u != nil {
		dst = u.appendJSON(key(dst, "usage"))
	}
	dst = stringMember(dst, "service_tier", tier)
	dst = stringMember(dst, "system_fingerprint", fingerprint)
	if e != nil {
		dst = e.appendValue(key(dst, "error"))
	}
	return dst
}

func (u *Usage) appendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), u.PromptTokens, 10)
	dst = strconv.AppendInt(key(dst, "completion_tokens"), u.CompletionTokens, 10)
	dst = strconv.AppendInt(key(dst, "total_tokens"), u.TotalTokens, 10)
	if p := u.PromptTokensDetails; p != nil {
		dst = strconv.AppendInt(append(key(dst, "prompt_tokens_details"), `{"cached_tokens":`...), p.CachedTokens, 10)
		if p.CacheWriteTokens != 0 {
			dst = strconv.AppendInt(key(dst, "cache_write_tokens"), p.CacheWriteTokens, 10)
		}
		dst = strconv.AppendInt(key(dst, "audio_tokens"), p.AudioTokens, 10)
		dst = append(p.Extra.appendTo(dst), '}')
	}
	if c := u.CompletionTokensDetails; c != nil {
		dst = strconv.AppendInt(append(key(dst, "completion_tokens_details"), `{"reasoning_tokens":`...), c.ReasoningTokens, 10)
		dst = strconv.AppendInt(key(dst, "audio_tokens"), c.AudioTokens, 10)
		dst = strconv.AppendInt(key(dst, "accepted_prediction_tokens"), c.AcceptedPredictionTokens, 10)
		dst = strconv.AppendInt(key(dst, "rejected_prediction_tokens"), c.RejectedPredictionTokens, 10)
		dst = append(c.Extra.appendTo(dst), '}')
	}
	return append(u.Extra.appendTo(dst), '}')
}
