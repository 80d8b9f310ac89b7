package openai

import (
	"bytes"
	"slices"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// stream turns the events of one answer into chunks.
type stream struct {
	target  vendors.Target
	asked   int // choices
	wire    openaiapi.ChatChunk
	choices []*choice
	usage   *ktmsv1.TokensUsage

	// What was said already, so that each chunk says only what is new.
	id, model, fingerprint, tier string
	extra                        openaiapi.Members
	extraBytes                   int // of the values in it
	// held are members of the whole answer that wait for a chunk with content: they alone are no content.
	held openaiapi.Members
}

// maxChoices and maxCalls bound what a server can make this process remember of one answer. A request may ask for 128
// choices and declare 512 tools.
const (
	maxChoices = 128
	maxCalls   = 1024
	// maxExtra is how many further members of the whole answer are kept, and maxExtraBytes how large they are together.
	// Servers have a dozen, and some name what they have found on the web.
	maxExtra      = 256
	maxExtraBytes = 4 << 20
)

// choice is one answer of a stream.
type choice struct {
	index    int64
	said     bool
	finished bool
	calls    []toolCall
}

// toolCall is one call of a choice; its place in the list is its index.
type toolCall struct {
	wireIndex int64
	hasIndex  bool
	id, name  string
	custom    bool
}

func newStream(t vendors.Target, asked int) *stream { return &stream{target: t, asked: asked} }

// take reads the data of one event. Chunks may come together with an error that follows them.
func (s *stream) take(event string, data []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	if err := s.wire.Decode(data); err != nil {
		if event == "error" {
			return nil, apiError(s.target, 0, &openaiapi.ErrorBody{Message: string(data)})
		}
		return nil, garbled(s.target, err)
	}
	w := &s.wire
	own := takeGroq(&w.Extra)
	if w.Error == nil {
		w.Error = own.err
	}
	if w.Error == nil && (event == "error" || len(w.Choices) == 0 && w.Usage == nil && w.ID == "") {
		w.Error = openaiapi.DecodeError(data) // a flat one
	}
	if w.Error == nil && event == "error" {
		w.Error = &openaiapi.ErrorBody{Message: string(data)}
	}
	if w.Error != nil {
		return nil, apiError(s.target, 0, w.Error)
	}
	if w.Usage == nil {
		w.Usage = own.usage
	}
	if counted := usage(w.Usage); counted != nil {
		s.usage = counted
	}
	s.hold(w.Extra)

	var out []*ktmsv1.GenerateTextChunk
	if len(w.Choices) == 0 {
		if c := s.preamble(); c != nil {
			out = append(out, c)
		}
		return out, nil
	}
	for i := range w.Choices {
		c, failed := s.choice(&w.Choices[i])
		if failed != nil {
			return out, failed
		}
		if c != nil {
			out = append(out, c)
		}
	}
	return out, nil
}

// hold keeps members of the whole answer until a chunk has content. Servers repeat some of them on every event; only
// what changed is kept. The values are copied, since the event's bytes are used again.
func (s *stream) hold(extra openaiapi.Members) {
	for _, m := range extra {
		if m.Name == "obfuscation" || string(m.Value) == "null" || bytes.Equal(s.extra.Get(m.Name), m.Value) {
			continue // obfuscation is padding against eavesdroppers on the vendor's own connection
		}
		former := s.extra.Get(m.Name)
		size := s.extraBytes + len(m.Value) - len(former)
		if former == nil && len(s.extra) >= maxExtra || size > maxExtraBytes {
			continue
		}
		value := bytes.Clone(m.Value)
		s.extra.Take(m.Name)
		s.extra.Add(m.Name, value)
		s.extraBytes = size
		s.held.Take(m.Name)
		s.held.Add(m.Name, value)
	}
}

// preamble is a chunk with what is new about the whole answer; nil when nothing is.
func (s *stream) preamble() *ktmsv1.GenerateTextChunk {
	c := &ktmsv1.GenerateTextChunk{}
	w := &s.wire
	news := false
	if s.id == "" && w.ID != "" {
		s.id, c.VendorResponseId, news = w.ID, w.ID, true
	}
	if s.model == "" && w.Model != "" {
		s.model, c.VendorModel, news = w.Model, w.Model, true
	}
	if w.SystemFingerprint != "" && w.SystemFingerprint != s.fingerprint {
		s.fingerprint, c.SystemFingerprint, news = w.SystemFingerprint, w.SystemFingerprint, true
	}
	if w.ServiceTier != "" && w.ServiceTier != s.tier {
		s.tier, c.ServiceTier, news = w.ServiceTier, w.ServiceTier, true
	}
	if !news {
		return nil
	}
	return c
}

func (s *stream) choice(w *openaiapi.ChunkChoice) (*ktmsv1.GenerateTextChunk, *vendors.Error) {
	if !validIndex(w.Index) {
		return nil, unavailable(s.target, "answered with a choice that was not asked for")
	}
	state := s.state(w.Index)
	out := s.preamble()
	fresh := out == nil
	if fresh {
		out = &ktmsv1.GenerateTextChunk{}
	}
	out.Index = int32(w.Index)

	d := &w.Delta
	legacyCall(d)
	content := contentOf(&d.Content)
	out.Delta, out.RefusalDelta, out.ReasoningDelta = content.text, d.Refusal+content.refusal, content.thoughts+reasoningOf(d)
	out.LogprobsJson = string(w.Logprobs)
	for i := range d.ToolCalls {
		out.ToolCallChunks = append(out.ToolCallChunks, state.call(&d.ToolCalls[i]))
		if len(state.calls) > maxCalls {
			return nil, unavailable(s.target, "answered with more tool calls than can be")
		}
	}
	extra := append(withoutNulls(d.Extra), withoutNulls(w.Extra)...)
	out.ExtraJson = append(extra, content.further...).JSON()
	state.said = state.said || vendors.HasContent(out)

	if w.FinishReason != "" && !state.finished {
		var failed *vendors.Error
		out.FinishReason, out.RawFinishReason, failed = finish(s.target, w.FinishReason, state.said, len(state.calls) > 0)
		if failed != nil {
			return nil, failed
		}
		state.finished = true
	}
	if !vendors.HasContent(out) {
		if fresh {
			return nil, nil
		}
		return out, nil
	}
	if s.held != nil {
		out.ExtraJson = append(extra, append(content.further, s.held...)...).JSON()
		s.held = nil
	}
	return out, nil
}

func validIndex(index int64) bool { return index >= 0 && index < maxChoices }

func (s *stream) state(index int64) *choice {
	for _, c := range s.choices {
		if c.index == index {
			return c
		}
	}
	c := &choice{index: index}
	s.choices = append(s.choices, c)
	return c
}

// call finds which call a piece belongs to and gives it that call's index, from 0 and without gaps whatever the server
// counts. Servers that leave the index out, or say 0 for every call, begin a call with a new id and a name.
func (c *choice) call(w *openaiapi.ToolCallDelta) *ktmsv1.ToolCallChunk {
	var name, arguments string
	switch {
	case w.Custom != nil:
		name, arguments = w.Custom.Name, w.Custom.Input
	case w.Function != nil:
		name, arguments = w.Function.Name, w.Function.Arguments
	}
	at := c.find(w, name)
	out := &ktmsv1.ToolCallChunk{Index: int32(at), Arguments: arguments, ExtraJson: withoutNulls(w.Extra).JSON()}
	if at == len(c.calls) {
		call := toolCall{id: w.ID, name: name, custom: w.Custom != nil}
		if w.Index != nil {
			call.wireIndex, call.hasIndex = *w.Index, true
		}
		c.calls = append(c.calls, call)
		if out.Id = w.ID; out.Id == "" {
			out.Id = newCallID()
		}
		out.Name, out.Type = name, "function"
		if call.custom {
			out.Type = "custom"
		}
		return out
	}
	call := &c.calls[at]
	if call.id == "" {
		call.id = w.ID
	}
	if call.name == "" { // it comes late
		call.name, out.Name = name, name
	}
	return out
}

// find returns the place of the call that a piece belongs to; the number of calls stands for a new one.
func (c *choice) find(w *openaiapi.ToolCallDelta, name string) int {
	last := len(c.calls) - 1
	if w.Index != nil {
		for i := last; i >= 0; i-- {
			if call := &c.calls[i]; call.hasIndex && call.wireIndex == *w.Index {
				if another(call, w.ID, name) {
					return len(c.calls)
				}
				return i
			}
		}
		return len(c.calls)
	}
	if w.ID != "" {
		if i := slices.IndexFunc(c.calls, func(call toolCall) bool { return call.id == w.ID }); i >= 0 {
			return i
		}
	}
	if last < 0 || name != "" || another(&c.calls[last], w.ID, name) {
		return len(c.calls)
	}
	return last
}

// another reports whether a piece at a call's index begins the next call. A new id alone does not: some servers make
// one up for every piece.
func another(call *toolCall, id, name string) bool {
	return name != "" && id != "" && call.id != "" && id != call.id
}

// whole reads an answer that came in one piece where a stream was asked for.
func (s *stream) whole(body []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	response, failed := decode(s.target, body)
	if failed != nil {
		return nil, failed
	}
	s.fingerprint = response.GetSystemFingerprint()
	var out []*ktmsv1.GenerateTextChunk
	for i, c := range response.GetChoices() {
		chunk := &ktmsv1.GenerateTextChunk{
			Index: c.GetIndex(), Delta: c.GetText(), ReasoningDelta: c.GetReasoning(), RefusalDelta: c.GetRefusal(),
			FinishReason: c.GetFinishReason(), RawFinishReason: c.GetRawFinishReason(),
			LogprobsJson: c.GetLogprobsJson(), ExtraJson: c.GetExtraJson(),
		}
		for at, call := range c.GetToolCalls() {
			chunk.ToolCallChunks = append(chunk.ToolCallChunks, &ktmsv1.ToolCallChunk{Index: int32(at), Id: call.GetId(),
				Name: call.GetName(), Arguments: call.GetArguments(), Type: call.GetType(), ExtraJson: call.GetExtraJson()})
		}
		if i == 0 {
			chunk.VendorResponseId, chunk.VendorModel = response.GetVendorResponseId(), response.GetVendorModel()
			chunk.SystemFingerprint, chunk.ServiceTier = response.GetSystemFingerprint(), response.GetServiceTier()
			chunk.ExtraJson = joined(c.GetExtraJson(), response.GetExtraJson())
		}
		out = append(out, chunk)
	}
	if response.GetUsage() != nil {
		out = append(out, &ktmsv1.GenerateTextChunk{Usage: response.GetUsage()})
	}
	return out, nil
}

// joined are the members of two objects in one; either may be empty.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a[:len(a)-1] + "," + b[1:]
}

// end is the last chunk, with the usage, and the error that the stream ends in. cause is nil after a clean end, which
// still is an error if a choice has no finish reason: then the vendor broke off. The other way round, a connection that
// was cut after every choice had finished took nothing away.
func (s *stream) end(cause *vendors.Error, cut bool) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	done := 0
	for _, c := range s.choices {
		if c.finished {
			done++
		}
	}
	switch {
	case cause == nil && len(s.choices) == 0:
		cause = unavailable(s.target, "the stream ended without an answer")
	case cause == nil && done < len(s.choices):
		cause = unavailable(s.target, "the stream ended before the answer did")
	case cut && cause.Kind == vendors.Unavailable && done == len(s.choices) && done >= s.asked:
		cause = nil
	}
	out := &ktmsv1.GenerateTextChunk{Usage: s.usage}
	if cause == nil {
		out.ExtraJson = s.held.JSON()
	}
	if out.Usage == nil && out.ExtraJson == "" {
		return nil, cause
	}
	return []*ktmsv1.GenerateTextChunk{out}, cause
}
