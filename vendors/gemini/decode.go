package gemini

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strings"
	"unicode/utf8"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// The wire's answers. A complete answer and each event of a stream have the same shape. What is not read (safety
// ratings and the like) is left where it is.
type wireResponse struct {
	Candidates     []wireCandidate `json:"candidates"`
	PromptFeedback *wireFeedback   `json:"promptFeedback"`
	Usage          *wireUsage      `json:"usageMetadata"`
	ModelVersion   string          `json:"modelVersion"`
	ResponseID     string          `json:"responseId"`
	Error          json.RawMessage `json:"error"`
}

type wireCandidate struct {
	Index   int64 `json:"index"`
	Content struct {
		Parts []json.RawMessage `json:"parts"`
	} `json:"content"`
	FinishReason  string          `json:"finishReason"`
	FinishMessage string          `json:"finishMessage"`
	Grounding     json.RawMessage `json:"groundingMetadata"`
	Logprobs      *wireLogprobs   `json:"logprobsResult"`
}

type wireFeedback struct {
	BlockReason        string `json:"blockReason"`
	BlockReasonMessage string `json:"blockReasonMessage"`
}

type wirePart struct {
	Text         *string          `json:"text"`
	Thought      bool             `json:"thought"`
	Signature    string           `json:"thoughtSignature"`
	Call         *wireCall        `json:"functionCall"`
	Inline       *wireInline      `json:"inlineData"`
	ToolCall     *json.RawMessage `json:"toolCall"`
	ToolResponse *json.RawMessage `json:"toolResponse"`
}

type wireCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type wireInline struct {
	MIME string `json:"mimeType"`
	Data string `json:"data"`
}

// decode turns a complete answer into ours. Its errors have no status; the caller knows it.
func decode(t vendors.Target, names map[string]string, body []byte) (*ktmsv1.GenerateTextResponse, *vendors.Error) {
	s := newStream(t, 1, names)
	wire, failed := s.read(body)
	if failed != nil {
		failed.Usage = s.usage
		return nil, failed
	}
	if len(wire.Candidates) == 0 {
		return nil, unavailable(t, "answered without a candidate")
	}
	out := &ktmsv1.GenerateTextResponse{
		VendorResponseId: wire.ResponseID, VendorModel: wire.ModelVersion, ServiceTier: wire.Usage.tier(), Usage: usage(wire.Usage),
	}
	for i := range wire.Candidates {
		w := &wire.Candidates[i]
		c, failed := s.state(w.Index)
		if failed != nil {
			return nil, failed
		}
		if c.finished {
			return nil, unavailable(t, "answered with the same candidate twice")
		}
		if w.FinishReason == "" {
			w.FinishReason = unspecified // a complete answer is at its end, even if it does not say why
		}
		chunk, failed := c.take(t, names, w)
		if failed != nil {
			failed.Usage = out.GetUsage()
			return nil, failed
		}
		out.Choices = append(out.Choices, complete(chunk, w.Index))
	}
	return out, nil
}

// complete makes a choice of its only chunk.
func complete(c *ktmsv1.GenerateTextChunk, index int64) *ktmsv1.Choice {
	out := &ktmsv1.Choice{
		Index: int32(index), Text: c.GetDelta(), Reasoning: c.GetReasoningDelta(), FinishReason: c.GetFinishReason(),
		RawFinishReason: c.GetRawFinishReason(), Opaque: c.GetOpaque(), LogprobsJson: c.GetLogprobsJson(), ExtraJson: c.GetExtraJson(),
	}
	for _, call := range c.GetToolCallChunks() {
		out.ToolCalls = append(out.ToolCalls, &ktmsv1.ToolCall{
			Id: call.GetId(), Name: call.GetName(), Type: call.GetType(), Arguments: call.GetArguments(),
		})
	}
	return out
}

// choice is what is known of one answer so far.
type choice struct {
	said      bool // something that is not reasoning
	finished  bool
	calls     int
	state     state
	thought   string // the signature of the thoughts
	grounding json.RawMessage
}

// take reads what a candidate says next.
func (c *choice) take(t vendors.Target, names map[string]string, w *wireCandidate) (*ktmsv1.GenerateTextChunk, *vendors.Error) {
	out := &ktmsv1.GenerateTextChunk{Index: int32(w.Index)}
	var text, thoughts strings.Builder
	var more extras
	for _, raw := range w.Content.Parts {
		var p wirePart
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, garbled(t, err)
		}
		switch {
		case p.Call != nil:
			if c.calls >= maxCalls {
				return nil, unavailable(t, "answered with more tool calls than can be")
			}
			out.ToolCallChunks = append(out.ToolCallChunks, c.call(names, &p))
		case p.ToolCall != nil, p.ToolResponse != nil:
			if len(c.state.Server) < maxCalls {
				c.state.Server = append(c.state.Server, plain(raw))
			}
		case p.Inline != nil:
			more.media(p.Inline, raw)
			c.sign(p.Signature)
		case p.Text != nil && p.Thought:
			thoughts.WriteString(*p.Text)
			c.thought = or(p.Signature, c.thought)
		case p.Text != nil:
			text.WriteString(*p.Text)
			c.sign(p.Signature)
		case p.Signature != "": // a part of nothing else
			c.sign(p.Signature)
		default:
			more.part(raw)
		}
	}
	out.Delta, out.ReasoningDelta = text.String(), thoughts.String()
	out.LogprobsJson = w.Logprobs.openai()
	if isGrounding(w.Grounding) {
		c.grounding = bytes.Clone(w.Grounding) // the last one holds all of it
		if c.finished {
			more.ground(c.grounding)
		}
	}
	c.said = c.said || out.GetDelta() != "" || len(out.GetToolCallChunks()) > 0 || !more.empty()
	if w.FinishReason != "" && !c.finished {
		if failed := c.finish(t, w, out); failed != nil {
			return nil, failed
		}
		more.ground(c.grounding)
		if c.state.Text == "" {
			c.state.Text = c.thought
		}
		out.Opaque = c.state.seal(t.Model)
	}
	out.ExtraJson = more.json()
	return out, nil
}

// sign keeps the signature of the text. It comes with the last piece, which may be empty.
func (c *choice) sign(signature string) { c.state.Text = or(signature, c.state.Text) }

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// call reads a call; they come whole.
func (c *choice) call(names map[string]string, p *wirePart) *ktmsv1.ToolCallChunk {
	out := &ktmsv1.ToolCallChunk{Index: int32(c.calls), Id: p.Call.ID, Name: p.Call.Name, Type: "function", Arguments: plain(p.Call.Args)}
	if own, renamed := names[out.GetName()]; renamed {
		out.Name = own
	}
	if out.GetId() == "" {
		out.Id = newCallID()
	}
	if out.GetArguments() == "" || out.GetArguments() == "null" {
		out.Arguments = "{}"
	}
	c.calls++
	c.state.Calls = append(c.state.Calls, p.Signature)
	return out
}

// newCallID makes up an id for a call that came without one: results have to name what they answer.
func newCallID() string { return "call_" + rand.Text() }

// plain is JSON as text; what is no UTF-8 in it could not be sent on.
func plain(raw json.RawMessage) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD")
}

// unspecified is what the vendor calls a reason that it does not give.
const unspecified = "FINISH_REASON_UNSPECIFIED"

// finishReasons maps every reason that the vendor is known to give.
var finishReasons = map[string]string{
	"STOP": "stop", "LANGUAGE": "stop", "OTHER": "stop", "IMAGE_OTHER": "stop", "NO_IMAGE": "stop",
	// CONTINUATION is where one call has to end; going on would be another call.
	"MAX_TOKENS": "length", "CONTINUATION": "length",
	"SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
	"PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "IMAGE_SAFETY": "content_filter",
	"IMAGE_PROHIBITED_CONTENT": "content_filter", "IMAGE_RECITATION": "content_filter",
}

// brokenReasons are those with which the vendor says that the model failed to write a call; another try can succeed. What
// it said before the call is no answer without it.
var brokenReasons = map[string]bool{"MALFORMED_FUNCTION_CALL": true, "UNEXPECTED_TOOL_CALL": true, "TOO_MANY_TOOL_CALLS": true}

// finish ends the choice. An unknown reason is a normal end.
func (c *choice) finish(t vendors.Target, w *wireCandidate, out *ktmsv1.GenerateTextChunk) *vendors.Error {
	reason := w.FinishReason
	if brokenReasons[reason] {
		text := "the answer ended with " + reason
		if w.FinishMessage != "" {
			text += ": " + w.FinishMessage
		}
		return unavailable(t, shown(t, text))
	}
	ours, known := finishReasons[reason]
	if reason == unspecified {
		if reason = ""; !c.said {
			return unavailable(t, "answered with nothing")
		}
	}
	if !known {
		ours = "stop"
	}
	if c.calls > 0 && ours == "stop" {
		ours = "tool_calls" // the vendor reports the end of a call as STOP
	}
	c.finished = true
	out.FinishReason, out.RawFinishReason = ours, strings.ToValidUTF8(reason, "\uFFFD")
	return nil
}
