package anthropic

import (
	"encoding/json"
	"slices"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// maxBlocks bounds what a server can make this process remember of one answer. A request may declare 512 tools.
const maxBlocks = 4096

// wireEvent is any event of a stream.
type wireEvent struct {
	Type         string          `json:"type"`
	Message      *wireMessage    `json:"message"`
	Index        int64           `json:"index"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        *wireDelta      `json:"delta"`
	Usage        *wireUsage      `json:"usage"`
	Error        json.RawMessage `json:"error"`
}

// wireDelta is the next piece of a block, or the end of the message.
type wireDelta struct {
	Type        string       `json:"type"`
	Text        string       `json:"text"`
	PartialJSON string       `json:"partial_json"`
	Thinking    string       `json:"thinking"`
	Signature   string       `json:"signature"`
	StopReason  string       `json:"stop_reason"`
	StopDetails *stopDetails `json:"stop_details"`
}

// stream turns the events of one answer into chunks.
type stream struct {
	target vendors.Target
	names  map[string]string
	blocks []*streamBlock // in the order in which they began
	calls  int
	usage  *wireUsage
	told   *ktmsv1.TokensUsage // the usage that was yielded

	id, model string
	begun     bool // the input was counted and told
	counted   bool // the output, too
	finished  bool
	stopped   bool // nothing more is to be read
}

// streamBlock is a content block that is coming, or came.
type streamBlock struct {
	wireBlock
	index  int64 // the vendor's
	call   int   // among the calls
	length int   // of the text
	begun  bool
	done   bool
	// The thinking and the signature in pieces.
	thinking, signature []byte
}

func newStream(t vendors.Target, names map[string]string) *stream {
	return &stream{target: t, names: names}
}

// take reads the data of one event. A failure after the finish took nothing away, and ends the stream.
func (s *stream) take(name string, data []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	chunks, failed := s.read(name, data)
	if failed == nil {
		return chunks, nil
	}
	if s.finished {
		s.stopped = true
		return nil, nil
	}
	if s.counted { // the vendor counted the output, too
		failed.Usage = s.usage.counted()
	}
	return nil, failed
}

// read reads an event. After the finish nothing but the usage counts.
func (s *stream) read(name string, data []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	var w wireEvent
	if err := json.Unmarshal(data, &w); err != nil {
		if name == "error" {
			return nil, apiError(s.target, 0, readError(data))
		}
		if string(data) == "[DONE]" { // of servers that imitate the API
			return nil, nil
		}
		return nil, garbled(s.target, err)
	}
	if name == "error" || w.Type == "error" || w.Error != nil && string(w.Error) != "null" {
		return nil, apiError(s.target, 0, readError(data))
	}
	if w.Type == "" { // of servers that name the event alone
		w.Type = name
	}
	switch w.Type {
	case "message_delta":
		return s.finish(&w), nil
	case "message_stop":
		s.stopped = true
		return nil, nil
	}
	if s.finished {
		return nil, nil
	}
	switch w.Type {
	case "message_start":
		return s.start(w.Message), nil
	case "content_block_start":
		return s.begin(&w)
	case "content_block_delta":
		return s.piece(&w)
	case "content_block_stop":
		return s.complete(s.block(w.Index)), nil
	}
	return nil, nil // ping, and what is yet to be invented
}

// start says who answers, and what the vendor counted of the input: that is billed even if the answer never ends.
func (s *stream) start(m *wireMessage) []*ktmsv1.GenerateTextChunk {
	if m == nil {
		return nil
	}
	s.usage = s.usage.merge(m.Usage)
	out := &ktmsv1.GenerateTextChunk{}
	if s.id == "" {
		s.id, out.VendorResponseId = m.ID, m.ID
	}
	if s.model == "" {
		s.model, out.VendorModel = m.Model, m.Model
	}
	if counted := s.usage.counted(); !s.begun && counted.GetInput() > 0 {
		counted.Output, counted.Reasoning, counted.Estimated = 0, 0, true
		s.begun, out.Usage = true, counted
	}
	if out.GetVendorResponseId() == "" && out.GetVendorModel() == "" && out.GetUsage() == nil {
		return nil
	}
	return []*ktmsv1.GenerateTextChunk{out}
}

func (s *stream) block(index int64) *streamBlock {
	for _, b := range slices.Backward(s.blocks) {
		if b.index == index {
			return b
		}
	}
	return nil
}

// begin takes in a new block, with whatever of it comes at once.
func (s *stream) begin(w *wireEvent) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	b := &streamBlock{index: w.Index}
	if err := json.Unmarshal(w.ContentBlock, &b.wireBlock); err != nil {
		return nil, garbled(s.target, err)
	}
	if len(s.blocks) == maxBlocks {
		return nil, tooMany(s.target)
	}
	s.blocks = append(s.blocks, b)
	out := &ktmsv1.GenerateTextChunk{}
	switch b.Type {
	case "text":
		out.Delta, b.length = b.Text, len(b.Text)
	case "thinking":
		b.thinking, b.signature = []byte(b.Thinking), []byte(b.Signature)
		out.ReasoningDelta = b.Thinking
	case "tool_use":
		if b.Name == "" {
			return nil, nameless(s.target)
		}
		b.call, b.ID = s.calls, callID(b.ID, s.calls)
		s.calls++
		out.ToolCallChunks = []*ktmsv1.ToolCallChunk{{Index: int32(b.call), Id: b.ID, Name: ownName(s.names, b.Name), Type: "function"}}
	}
	return content(out), nil
}

// content is a chunk, if there is anything in it.
func content(c *ktmsv1.GenerateTextChunk) []*ktmsv1.GenerateTextChunk {
	if !vendors.HasContent(c) {
		return nil
	}
	return []*ktmsv1.GenerateTextChunk{c}
}

// piece takes in the next piece of a block.
func (s *stream) piece(w *wireEvent) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	b := s.block(w.Index)
	if b == nil || w.Delta == nil {
		return nil, unavailable(s.target, "sent a piece of a content block that did not begin")
	}
	out := &ktmsv1.GenerateTextChunk{}
	switch d := w.Delta; {
	case d.Type == "text_delta" && b.Type == "text":
		out.Delta = d.Text
		b.length += len(d.Text)
	case d.Type == "thinking_delta" && b.Type == "thinking":
		out.ReasoningDelta = d.Thinking
		b.thinking = append(b.thinking, d.Thinking...)
	case d.Type == "signature_delta" && b.Type == "thinking":
		b.signature = append(b.signature, d.Signature...)
	case d.Type == "input_json_delta" && b.Type == "tool_use" && d.PartialJSON != "":
		b.begun = true
		out.ToolCallChunks = []*ktmsv1.ToolCallChunk{{Index: int32(b.call), Arguments: d.PartialJSON}}
	}
	return content(out), nil
}

// complete ends a block. A call whose arguments did not come in pieces has them from its beginning, or none.
func (s *stream) complete(b *streamBlock) []*ktmsv1.GenerateTextChunk {
	if b == nil || b.done {
		return nil
	}
	b.done = true
	if b.Type != "tool_use" || b.begun {
		return nil
	}
	return []*ktmsv1.GenerateTextChunk{{ToolCallChunks: []*ktmsv1.ToolCallChunk{{Index: int32(b.call), Arguments: arguments(b.Input)}}}}
}

// finish takes in the end of the message, with the thinking that has to come back and the usage.
func (s *stream) finish(w *wireEvent) []*ktmsv1.GenerateTextChunk {
	s.usage = s.usage.merge(w.Usage)
	s.counted = s.counted || w.Usage != nil
	if w.Delta == nil || w.Delta.StopReason == "" || s.finished {
		return nil
	}
	var out []*ktmsv1.GenerateTextChunk
	for _, b := range s.blocks {
		out = append(out, s.complete(b)...) // some servers forget to
	}
	s.finished = true
	s.told = s.usage.counted()
	last := &ktmsv1.GenerateTextChunk{RefusalDelta: w.Delta.StopDetails.explanation(), Opaque: s.thoughts(), Usage: s.told}
	last.FinishReason, last.RawFinishReason = finish(w.Delta.StopReason, s.calls > 0)
	if s.usage != nil {
		last.ServiceTier = s.usage.ServiceTier
	}
	return append(out, last)
}

// thoughts is the state of the thinking blocks and of what stands between them.
func (s *stream) thoughts() string {
	var order claude.Order
	for _, b := range s.blocks {
		switch b.Type {
		case "thinking":
			order.Think(claude.Thought{Thinking: string(b.thinking), Signature: string(b.signature)})
		case "redacted_thinking":
			order.Think(claude.Thought{Redacted: b.Data})
		case "text":
			order.Text(b.length)
		case "tool_use":
			order.Call(b.ID)
		}
	}
	return order.Seal(vendors.Anthropic, s.target.Model)
}

// whole reads an answer that came in one piece where a stream was asked for.
func (s *stream) whole(body []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	response, failed := decode(s.target, s.names, body)
	if failed != nil {
		return nil, failed
	}
	c := response.GetChoices()[0]
	chunk := &ktmsv1.GenerateTextChunk{
		VendorResponseId: response.GetVendorResponseId(), VendorModel: response.GetVendorModel(), ServiceTier: response.GetServiceTier(),
		Delta: c.GetText(), ReasoningDelta: c.GetReasoning(), RefusalDelta: c.GetRefusal(), Opaque: c.GetOpaque(),
		FinishReason: c.GetFinishReason(), RawFinishReason: c.GetRawFinishReason(), Usage: response.GetUsage(),
	}
	for at, call := range c.GetToolCalls() {
		chunk.ToolCallChunks = append(chunk.ToolCallChunks, &ktmsv1.ToolCallChunk{
			Index: int32(at), Id: call.GetId(), Name: call.GetName(), Arguments: call.GetArguments(), Type: call.GetType()})
	}
	return []*ktmsv1.GenerateTextChunk{chunk}, nil
}

// end is what remains to be said at the end of a stream, and the error that it ends in. A connection that is cut after
// the answer had finished took nothing away.
func (s *stream) end(cause *vendors.Error) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	switch {
	case s.finished && (cause == nil || cause.Kind == vendors.Unavailable):
		cause = nil
	case cause == nil && s.id == "" && len(s.blocks) == 0:
		cause = unavailable(s.target, "the stream ended without an answer")
	case cause == nil:
		cause = unavailable(s.target, "the stream ended before the answer did")
	}
	counted := s.usage.counted()
	if cause != nil && s.counted {
		cause.Usage = counted
	}
	if cause != nil || s.told == nil && counted == nil || s.told != nil && equal(s.told, counted) {
		return nil, cause
	}
	return []*ktmsv1.GenerateTextChunk{{Usage: counted}}, nil
}

func equal(a, b *ktmsv1.TokensUsage) bool {
	return a.GetInput() == b.GetInput() && a.GetOutput() == b.GetOutput() && a.GetCacheRead() == b.GetCacheRead() &&
		a.GetCacheWrite() == b.GetCacheWrite() && a.GetCacheWrite_1H() == b.GetCacheWrite_1H() && a.GetReasoning() == b.GetReasoning()
}
