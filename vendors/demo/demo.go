// Package demo is a vendor without a model behind it. ktms-server dev offers it when it finds no real one, so that the
// first call of a newcomer gets an answer, and says plainly what it is.
package demo

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

const (
	// wordPause is the pause between streamed words, so that a stream looks like one.
	wordPause = 20 * time.Millisecond
	// bytesPerToken is the usual rough figure for Latin text.
	bytesPerToken = 4
)

const notice = "This is demo-echo, a demonstration without a language model behind it. "

// Vendor echoes.
type Vendor struct{}

// New returns the demonstration vendor.
func New() *Vendor { return &Vendor{} }

// Generate implements vendors.Vendor.
func (*Vendor) Generate(_ context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	r := answer(req)
	choice := &ktmsv1.Choice{Text: r.text, FinishReason: r.finish}
	if r.call != nil {
		choice.ToolCalls = []*ktmsv1.ToolCall{r.call}
	}
	return &vendors.Answer{Response: &ktmsv1.GenerateTextResponse{
		Choices: []*ktmsv1.Choice{choice}, Usage: r.usage, VendorModel: t.Model}}, nil
}

// Stream implements vendors.Vendor.
func (*Vendor) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		if !yield(vendors.Event{Head: &vendors.Head{}}, nil) {
			return
		}
		r := answer(req)
		send := func(c *ktmsv1.GenerateTextChunk) bool { return yield(vendors.Event{Chunk: c}, nil) }
		if c := r.call; c != nil {
			if !send(&ktmsv1.GenerateTextChunk{VendorModel: t.Model, ToolCallChunks: []*ktmsv1.ToolCallChunk{
				{Id: c.GetId(), Name: c.GetName(), Type: c.GetType(), Arguments: c.GetArguments()}}}) {
				return
			}
		}
		tick := time.NewTicker(wordPause)
		defer tick.Stop()
		for word := range strings.SplitAfterSeq(r.text, " ") {
			if word == "" {
				continue
			}
			if !send(&ktmsv1.GenerateTextChunk{Delta: word, VendorModel: t.Model}) {
				return
			}
			select {
			case <-ctx.Done():
				yield(vendors.Event{}, &vendors.Error{Kind: vendors.Canceled, Vendor: vendors.Demo, Err: ctx.Err()})
				return
			case <-tick.C:
			}
		}
		send(&ktmsv1.GenerateTextChunk{FinishReason: r.finish, Usage: r.usage})
	}
}

// Fields implements vendors.Vendor. Nothing but the last text and the first tool makes a difference.
func (*Vendor) Fields(_, _ string) vendors.Table {
	table := vendors.Table{}
	for _, f := range vendors.Fields() {
		table[f] = vendors.Support{How: vendors.Dropped}
	}
	for _, f := range []vendors.Field{vendors.MessageText, vendors.PartText, vendors.Tools} {
		table[f] = vendors.Support{How: vendors.Translated, Note: "echoed"}
	}
	return table
}

type reply struct {
	text   string
	call   *ktmsv1.ToolCall
	finish string
	usage  *ktmsv1.TokensUsage
}

// answer repeats the last message, or calls the first tool that is offered, so that both can be tried.
func answer(req *ktmsv1.GenerateTextRequest) reply {
	prompt := len(req.GetBaseSystemInstruction()) + len(req.GetRequestInstruction())
	for _, m := range req.GetMessages() {
		prompt += len(said(m))
	}
	var r reply
	last := lastOf(req)
	tool := toolOf(req)
	switch {
	case last.GetRole() == ktmsv1.MessageRole_MESSAGE_ROLE_TOOL:
		r.text = notice + "The tool answered: " + said(last)
	case tool != "":
		r.call = &ktmsv1.ToolCall{Id: fmt.Sprintf("call_demo_%d", len(req.GetMessages())), Type: "function", Name: tool, Arguments: "{}"}
	default:
		r.text = notice + "You said: " + said(last)
	}
	r.finish = "stop"
	if r.call != nil {
		r.finish = "tool_calls"
	}
	r.usage = &ktmsv1.TokensUsage{Input: tokens(prompt), Output: tokens(len(r.text) + len(r.call.GetName())), Estimated: true}
	return r
}

func lastOf(req *ktmsv1.GenerateTextRequest) *ktmsv1.Message {
	if n := len(req.GetMessages()); n > 0 {
		return req.GetMessages()[n-1]
	}
	return &ktmsv1.Message{Text: req.GetRequestInstruction()}
}

func toolOf(req *ktmsv1.GenerateTextRequest) string {
	choice := req.GetToolChoice()
	switch {
	case choice.GetMode() == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE || len(req.GetTools()) == 0:
		return ""
	case choice.GetFunctionName() != "":
		return choice.GetFunctionName()
	default:
		return req.GetTools()[0].GetName()
	}
}

func said(m *ktmsv1.Message) string {
	text := m.GetText()
	var textSb129 strings.Builder
	for _, part := range m.GetParts() {
		textSb129.WriteString(part.GetText())
	}
	text += textSb129.String()
	return text
}

func tokens(length int) int64 { return int64((length + bytesPerToken - 1) / bytesPerToken) }
