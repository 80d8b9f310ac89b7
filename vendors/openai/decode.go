package openai

import (
	"crypto/rand"
	"encoding/json"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// decode turns a complete answer into ours. Its errors have no status; the caller knows it.
func decode(t vendors.Target, body []byte) (*ktmsv1.GenerateTextResponse, *vendors.Error) {
	wire, err := openaiapi.DecodeChatResponse(body)
	if err != nil {
		return nil, garbled(t, err)
	}
	if wire.Error == nil && len(wire.Choices) == 0 {
		wire.Error = openaiapi.DecodeError(body) // a flat one, in the place of an answer
	}
	if wire.Error != nil {
		return nil, apiError(t, 0, wire.Error)
	}
	if len(wire.Choices) == 0 {
		return nil, unavailable(t, "answered without a choice")
	}
	out := &ktmsv1.GenerateTextResponse{
		VendorResponseId: wire.ID, VendorModel: wire.Model, SystemFingerprint: wire.SystemFingerprint, ServiceTier: wire.ServiceTier,
		Choices: make([]*ktmsv1.Choice, 0, len(wire.Choices)),
	}
	u := wire.Usage
	if own := takeGroq(&wire.Extra); u == nil {
		u = own.usage
	}
	out.Usage = usage(u)
	for i := range wire.Choices {
		choice, err := decodeChoice(t, &wire.Choices[i])
		if err != nil {
			err.Usage = out.GetUsage()
			return nil, err
		}
		out.Choices = append(out.Choices, choice)
	}
	out.ExtraJson = withoutNulls(wire.Extra).JSON()
	return out, nil
}

func decodeChoice(t vendors.Target, wire *openaiapi.Choice) (*ktmsv1.Choice, *vendors.Error) {
	if !validIndex(wire.Index) {
		return nil, unavailable(t, "answered with a choice that was not asked for")
	}
	m := &wire.Message
	legacyCall(m)
	content := contentOf(&m.Content)
	out := &ktmsv1.Choice{
		Index: int32(wire.Index), Text: content.text, Refusal: m.Refusal + content.refusal, Reasoning: content.thoughts + reasoningOf(m), LogprobsJson: string(wire.Logprobs),
	}
	for i := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, decodeToolCall(&m.ToolCalls[i]))
	}
	extra := append(withoutNulls(m.Extra), withoutNulls(wire.Extra)...)
	out.ExtraJson = append(extra, content.further...).JSON()

	said := out.Text != "" || out.Refusal != "" || out.Reasoning != "" || len(out.ToolCalls) > 0 || out.ExtraJson != ""
	var err *vendors.Error
	out.FinishReason, out.RawFinishReason, err = finish(t, wire.FinishReason, said, len(out.ToolCalls) > 0)
	return out, err
}

func decodeToolCall(wire *openaiapi.ToolCall) *ktmsv1.ToolCall {
	out := &ktmsv1.ToolCall{Id: wire.ID, Type: "function", ExtraJson: withoutNulls(wire.Extra).JSON()}
	if out.Id == "" {
		out.Id = newCallID()
	}
	switch {
	case wire.Custom != nil:
		out.Type, out.Name, out.Arguments = "custom", wire.Custom.Name, wire.Custom.Input
	case wire.Function != nil:
		out.Name, out.Arguments = wire.Function.Name, wire.Function.Arguments
	}
	return out
}

// legacyCall makes a call of function_call, in which old servers answer. It has no id, and there is one of it at most.
func legacyCall(m *openaiapi.Message) {
	members, err := openaiapi.ParseMembers(m.Extra.Get("function_call"))
	if err != nil || len(m.ToolCalls) > 0 {
		return
	}
	var f openaiapi.FunctionCall
	if json.Unmarshal(members.Get("name"), &f.Name) != nil && members.Get("name") != nil ||
		json.Unmarshal(members.Get("arguments"), &f.Arguments) != nil && members.Get("arguments") != nil {
		return
	}
	m.Extra.Take("function_call")
	m.ToolCalls = []openaiapi.ToolCall{{Index: new(int64), Type: "function", Function: &f}}
}

// newCallID makes up an id for a call that came without one: results have to name what they answer.
func newCallID() string { return "call_" + rand.Text() }

// reasoningOf reads either spelling; servers that change from one to the other send both for a while.
func reasoningOf(m *openaiapi.Message) string {
	if m.ReasoningContent != "" {
		return m.ReasoningContent
	}
	return m.Reasoning
}

// contents is what a content says.
type contents struct {
	text, thoughts, refusal string
	further                 openaiapi.Members
}

// contentOf reads a content. Servers with reasoning models (Mistral) answer with parts: text, and the thinking before
// it. Parts of other kinds come back as a further member.
func contentOf(c *openaiapi.Content) contents {
	if c.Kind != openaiapi.ContentParts {
		return contents{text: c.Text}
	}
	var texts, thinking, refusals strings.Builder
	var unknown []byte
	for i := range c.Parts {
		p := &c.Parts[i]
		switch p.Type {
		case "text":
			texts.WriteString(p.Text)
		case "refusal":
			refusals.WriteString(p.Refusal)
		case "thinking":
			thinking.WriteString(thinkingOf(p))
		default:
			unknown = append(append(unknown, ','), p.JSON()...)
		}
	}
	out := contents{text: texts.String(), thoughts: thinking.String(), refusal: refusals.String()}
	if unknown != nil {
		unknown[0] = '['
		out.further.Add("content_parts", append(unknown, ']'))
	}
	return out
}

// thinkingOf reads {"type":"thinking","thinking":[{"type":"text","text":…}]}; the inner list may be a plain string.
func thinkingOf(p *openaiapi.Part) string {
	members, err := openaiapi.ParseMembers(p.Raw)
	if err != nil {
		return ""
	}
	inner := openaiapi.DecodeContent(members.Get("thinking"))
	return contentOf(&inner).text
}

// withoutNulls leaves out members that say nothing; vLLM sends a dozen of them with each answer.
func withoutNulls(members openaiapi.Members) openaiapi.Members {
	var kept openaiapi.Members
	for _, m := range members {
		if string(m.Value) != "null" {
			kept = append(kept, m)
		}
	}
	return kept
}

// finishReasons maps every reason that a server of this dialect is known to give.
var finishReasons = map[string]string{
	"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter",
	"function_call": "tool_calls", "tool_use": "tool_calls", "model_length": "length", "max_tokens": "length",
	"eos": "stop", "eos_token": "stop", "end_turn": "stop", "stop_sequence": "stop",
	"safety": "content_filter", "refusal": "content_filter", "recitation": "content_filter",
}

// brokenReasons are those with which a vendor says that it failed.
var brokenReasons = map[string]bool{"error": true, "insufficient_system_resource": true, "abort": true}

// finish maps a finish reason. raw is the vendor's word where it is not one of ours. An unknown word, or none, after
// something was said is a normal end; after nothing it is a failure.
func finish(t vendors.Target, reason string, said, calls bool) (ours, raw string, err *vendors.Error) {
	ours, known := finishReasons[strings.ToLower(reason)]
	if brokenReasons[strings.ToLower(reason)] || !known && !said {
		if reason == "" {
			return "", "", unavailable(t, "answered with nothing")
		}
		return "", "", unavailable(t, "the answer ended with "+shown(t, reason))
	}
	if !known {
		ours = "stop"
	}
	if calls && ours == "stop" {
		ours = "tool_calls" // some servers report the end of a call as stop
	}
	if _, same := ktmsReasons[reason]; !same {
		raw = reason
	}
	return ours, raw, nil
}

// ktmsReasons are the words of ktms.v1.
var ktmsReasons = map[string]bool{"stop": true, "length": true, "tool_calls": true, "content_filter": true}
