package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// wireMessage is an answer.
type wireMessage struct {
	Type        string            `json:"type"`
	ID          string            `json:"id"`
	Model       string            `json:"model"`
	Content     []json.RawMessage `json:"content"`
	StopReason  string            `json:"stop_reason"`
	StopDetails *stopDetails      `json:"stop_details"`
	Usage       *wireUsage        `json:"usage"`
	Error       json.RawMessage   `json:"error"`
}

// stopDetails say why the vendor refused to answer.
type stopDetails struct {
	Explanation string `json:"explanation"`
}

func (d *stopDetails) explanation() string {
	if d == nil {
		return ""
	}
	return d.Explanation
}

// wireBlock is a content block of an answer.
type wireBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
}

// decode turns a complete answer into ours. names are the caller's names of tools. Its errors have no status; the caller
// knows it.
func decode(t vendors.Target, names map[string]string, body []byte) (*ktmsv1.GenerateTextResponse, *vendors.Error) {
	var wire wireMessage
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, garbled(t, err)
	}
	if wire.Type == "error" || wire.Error != nil && string(wire.Error) != "null" {
		return nil, apiError(t, 0, readError(body))
	}
	choice, failed := wire.choice(t, names)
	if failed != nil {
		failed.Usage = wire.Usage.counted() // an answer that is of no use is billed all the same
		return nil, failed
	}
	out := &ktmsv1.GenerateTextResponse{
		VendorResponseId: wire.ID, VendorModel: wire.Model, Choices: []*ktmsv1.Choice{choice}, Usage: wire.Usage.counted(),
	}
	if wire.Usage != nil {
		out.ServiceTier = wire.Usage.ServiceTier
	}
	return out, nil
}

// choice reads the blocks of an answer.
func (wire *wireMessage) choice(t vendors.Target, names map[string]string) (*ktmsv1.Choice, *vendors.Error) {
	if wire.StopReason == "" {
		return nil, unavailable(t, "answered without a message that has an end")
	}
	if len(wire.Content) > maxBlocks {
		return nil, tooMany(t)
	}
	choice := &ktmsv1.Choice{Refusal: wire.StopDetails.explanation()}
	var order claude.Order
	var said, reasoning strings.Builder
	for _, raw := range wire.Content {
		var b wireBlock
		if err := json.Unmarshal(raw, &b); err != nil {
			return nil, garbled(t, err)
		}
		switch b.Type {
		case "text":
			said.WriteString(b.Text)
			order.Text(len(b.Text))
		case "thinking":
			reasoning.WriteString(b.Thinking)
			order.Think(claude.Thought{Thinking: b.Thinking, Signature: b.Signature})
		case "redacted_thinking":
			order.Think(claude.Thought{Redacted: b.Data})
		case "tool_use":
			if b.Name == "" {
				return nil, nameless(t)
			}
			call := &ktmsv1.ToolCall{Id: callID(b.ID, len(choice.GetToolCalls())), Type: "function", Name: ownName(names, b.Name), Arguments: arguments(b.Input)}
			choice.ToolCalls = append(choice.ToolCalls, call)
			order.Call(call.GetId())
		}
	}
	choice.Text, choice.Reasoning = said.String(), reasoning.String()
	choice.FinishReason, choice.RawFinishReason = finish(wire.StopReason, len(choice.GetToolCalls()) > 0)
	choice.Opaque = order.Seal(vendors.Anthropic, t.Model)
	return choice, nil
}

func tooMany(t vendors.Target) *vendors.Error {
	return unavailable(t, "answered with more content blocks than can be")
}

func nameless(t vendors.Target) *vendors.Error {
	return unavailable(t, "answered with a tool call without a name")
}

// arguments are the input of a call as JSON text. A call without any has an empty object.
func arguments(input json.RawMessage) string {
	if input = bytes.TrimSpace(input); len(input) == 0 || string(input) == "null" {
		return "{}"
	}
	return string(input)
}

// callID is a call's id. A result has to name what it answers, so that one that is missing is made up.
func callID(id string, at int) string {
	if id == "" {
		return fmt.Sprintf("toolu_unnamed_%d", at)
	}
	return id
}

// ownName is the caller's name of a tool.
func ownName(names map[string]string, wire string) string {
	if own, ok := names[wire]; ok {
		return own
	}
	return wire
}

// finishReasons maps every reason that the vendor is known to give.
var finishReasons = map[string]string{
	"end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "tool_use": "tool_calls",
	"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter",
	// Servers that imitate the API.
	"stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter",
}

// finish maps the reason for the end of an answer. raw is the vendor's word where it is not one of ours.
func finish(reason string, calls bool) (ours, raw string) {
	ours, known := finishReasons[reason]
	if !known {
		ours = "stop"
	}
	if reason != ours {
		raw = reason
	}
	if calls && ours == "stop" {
		ours = "tool_calls"
	}
	return ours, raw
}
