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
	dropped, failed := carried(req)
	if failed != nil {
		return nil, failed
	}
	r := answer(req)
	choice := &ktmsv1.Choice{Text: r.text, FinishReason: r.finish}
	if r.call != nil {
		choice.ToolCalls = []*ktmsv1.ToolCall{r.call}
	}
	return &vendors.Answer{Head: vendors.Head{Dropped: dropped}, Response: &ktmsv1.GenerateTextResponse{
		Choices: []*ktmsv1.Choice{choice}, Usage: r.usage, VendorModel: t.Model}}, nil
}

// Stream implements vendors.Vendor.
func (*Vendor) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		dropped, failed := carried(req)
		if failed != nil {
			yield(vendors.Event{}, failed)
			return
		}
		if !yield(vendors.Event{Head: &vendors.Head{Dropped: dropped}}, nil) {
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

// Fields implements vendors.Vendor.
func (*Vendor) Fields(_, _ string) vendors.Table { return fields }

// fields: what was said last is echoed, and the first tool is called.
var fields = func() vendors.Table {
	table := vendors.Table{}
	for _, f := range vendors.Fields() {
		table[f] = vendors.Support{How: vendors.Dropped}
	}
	for _, f := range []vendors.Field{vendors.MessageText, vendors.PartText, vendors.Tools, vendors.ToolCalls, vendors.ToolResults,
		vendors.ToolChoiceAuto, vendors.ToolChoiceNone, vendors.ToolChoiceRequired, vendors.ToolChoiceFunction} {
		table[f] = vendors.Support{How: vendors.Translated, Note: "echoed"}
	}
	for _, f := range []vendors.Field{vendors.ResponseSchema, vendors.ResponseSchemaJSON, vendors.JSONObject, vendors.ToolStrict} {
		table[f] = vendors.Support{How: vendors.Refused, Note: "there is no model that could follow a schema"}
	}
	return table
}()

// carried reports what of a request makes no difference here, or why there is no answer to it.
func carried(req *ktmsv1.GenerateTextRequest) ([]string, *vendors.Error) {
	l := vendors.NewLedger(vendors.Demo, fields)
	if req.GetJsonObject() || req.GetResponseSchema() != nil || req.GetResponseSchemaJson() != "" {
		l.Refuse("response_format", "it is no language model; set a vendor's key to try this")
	}
	for _, t := range req.GetTools() {
		l.Carries(vendors.ToolStrict, t.GetStrict())
	}
	for _, f := range []struct {
		field vendors.Field
		asked bool
	}{
		{vendors.MaxOutputTokens, req.GetMaxOutputTokens() > 0}, {vendors.Temperature, req.Temperature != nil}, {vendors.TopP, req.TopP != nil},
		{vendors.TopK, req.TopK != nil}, {vendors.Stop, len(req.GetStop()) > 0}, {vendors.Seed, req.Seed != nil}, {vendors.N, req.GetN() > 1},
		{vendors.Logprobs, req.GetLogprobs()}, {vendors.ReasoningEffort, req.GetReasoningEffort() != ""}, {vendors.Verbosity, req.GetVerbosity() != ""},
	} {
		l.Carries(f.field, f.asked)
	}
	return l.Close(req.GetStrictParams())
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
