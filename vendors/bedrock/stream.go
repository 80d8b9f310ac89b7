package bedrock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/schemas"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/transport/http/protocol/restjson1"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/transport"
)

const (
	// maxEvent bounds an event. Tool arguments reach several megabytes; beyond this a stream is broken or hostile.
	maxEvent = 64 << 20
	// drainTime bounds the reading after the last event. The end of the body is all that should come, and reading it lets
	// the connection serve the next call; a server that keeps the stream open is not waited for.
	drainTime = 250 * time.Millisecond
	// usageTime bounds the wait for the usage of an answer that failed at its end: the next candidate waits as well.
	usageTime = 5 * time.Second
)

var errEventTooLong = fmt.Errorf("event too long: more than %d bytes", maxEvent)

// eventReader bounds what one event may read.
type eventReader struct {
	r    io.Reader
	left int
	err  error // of r, which the SDK's decoder partly takes for an end
}

func (r *eventReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.err = errEventTooLong
		return 0, r.err
	}
	n, err := r.r.Read(p[:min(len(p), r.left)])
	r.left -= n
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// stream reads the answer's events and yields them. It returns nil after a clean end and when the consumer has enough.
func (c *call) stream(ctx context.Context, yield func(vendors.Event, error) bool) *vendors.Error {
	head := c.head()
	if !yield(vendors.Event{Head: &head}, nil) {
		return nil
	}
	body := bufio.NewReader(c.exchange.res.Body)
	// Proxies answer with JSON or HTML whatever was asked for. No event begins like that: it would be too long.
	if first, err := body.Peek(1); err == nil && (first[0] == '{' || first[0] == '<') {
		c.exchange.body, _ = io.ReadAll(io.LimitReader(body, maxShown))
		return c.unavailable(c.explain("answered with something that is not an event stream"))
	}
	// The SDK's own reader works ahead, and lets go of events that nobody took yet when an error follows.
	protocol := restjson1.New(schemas.AmazonBedrockFrontendService)
	s := newStream(c)
	events := &eventReader{r: body}
	drained, waiting := false, false
	for {
		events.left = maxEvent
		event, err := protocol.DeserializeEventMessage(schemas.ConverseStreamOutput, bedrockruntime.TypeRegistry, events)
		if err != nil {
			return s.end(ctx, err, events.err, drained)
		}
		chunk, failed := s.take(event)
		if failed != nil {
			return failed
		}
		if s.failed != nil {
			if s.counted {
				return s.failed
			}
			if !waiting {
				waiting = true
				giveUp := time.AfterFunc(usageTime, c.exchange.close)
				defer giveUp.Stop()
			}
		}
		if chunk != nil && !yield(vendors.Event{Chunk: chunk}, nil) {
			return nil
		}
		if s.finished && s.counted && !drained {
			drained = true
			giveUp := time.AfterFunc(drainTime, c.exchange.close)
			defer giveUp.Stop()
		}
	}
}

// end says what a stream ended in. Whatever breaks after the finish took nothing away but the usage.
func (s *stream) end(ctx context.Context, err, cause error, drained bool) *vendors.Error {
	if drained {
		return nil
	}
	if ctx.Err() != nil {
		return transport.Failure(ctx, s.call.target.Vendor, ctx.Err())
	}
	if s.finished {
		return s.failed
	}
	if errors.Is(cause, errEventTooLong) {
		e := s.call.unavailable("sent an event that is too long")
		e.Err = cause
		return e
	}
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		return s.call.streamError(said)
	}
	switch {
	case cause != nil:
		return transport.Failure(ctx, s.call.target.Vendor, cause)
	case errors.Is(err, io.EOF):
		return s.call.unavailable("the stream ended before the answer did")
	}
	return s.call.unavailable("sent an event that cannot be read")
}

// stream puts together what came in pieces.
type stream struct {
	call *call
	// uses are the calls by the index of their block; calls are those that are the caller's to answer, as they came.
	uses  map[int32]*use
	calls []*use
	begun int // calls of any kind
	// thoughts are the blocks of reasoning by their index. steps are what came of the answer, in order.
	thoughts map[int32]*streamedThought
	steps    []step
	said     bool // something that the caller has
	finished bool
	counted  bool // the usage came
	// failed is what the answer ended in, where its end is a failure. The usage comes after it and is billed.
	failed *vendors.Error
}

// step is a thought, a call, or so many bytes of text.
type step struct {
	thought *streamedThought
	call    string
	text    int
}

// order is that of the answer, to be kept for the next turn.
func (s *stream) order() *claude.Order {
	var out claude.Order
	for _, step := range s.steps {
		switch t := step.thought; {
		case t != nil:
			out.Think(newThought(string(t.text), string(t.signature), t.redacted))
		case step.call != "":
			out.Call(step.call)
		default:
			out.Text(step.text)
		}
	}
	return &out
}

// tell keeps a piece of text.
func (s *stream) tell(text string) {
	if n := len(s.steps); n > 0 && s.steps[n-1].text > 0 {
		s.steps[n-1].text += len(text)
	} else if text != "" {
		s.steps = append(s.steps, step{text: len(text)})
	}
}

// streamedThought grows with its pieces, of which there may be hundreds of thousands.
type streamedThought struct{ text, signature, redacted []byte }

// use is a call that began.
type use struct {
	index     int32
	ours      bool // to be answered by the caller
	arguments bool // some came
}

func newStream(c *call) *stream {
	return &stream{call: c, uses: map[int32]*use{}, thoughts: map[int32]*streamedThought{}}
}

// take reads an event. It returns nil for one that says nothing to the caller. After the finish only the usage counts.
func (s *stream) take(event any) (*ktmsv1.GenerateTextChunk, *vendors.Error) {
	out := &ktmsv1.GenerateTextChunk{}
	var failed *vendors.Error
	if _, usage := event.(*types.ConverseStreamMetadataEvent); s.finished && !usage {
		return nil, nil
	}
	switch e := event.(type) {
	case *types.ContentBlockStartEvent:
		failed = s.start(out, e)
	case *types.ContentBlockDeltaEvent:
		failed = s.delta(out, e)
	case *types.ContentBlockStopEvent:
		if u := s.uses[value(e.ContentBlockIndex)]; u != nil && u.ours && !u.arguments {
			u.arguments = true
			out.ToolCallChunks = []*ktmsv1.ToolCallChunk{{Index: u.index, Arguments: "{}"}}
		}
	case *types.MessageStopEvent:
		s.stop(out, e)
	case *types.ConverseStreamMetadataEvent:
		s.metadata(out, e)
	}
	if failed != nil {
		return nil, failed
	}
	s.said = s.said || vendors.HasContent(out)
	if s.failed != nil || !vendors.HasContent(out) && out.GetUsage() == nil && out.GetVendorModel() == "" && out.GetServiceTier() == "" {
		return nil, nil //nolint:nilerr // the failure waits for the usage
	}
	return out, nil
}

// valid is a text that an answer of ours can hold. The SDK passes on what is none.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func value(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func (s *stream) start(out *ktmsv1.GenerateTextChunk, e *types.ContentBlockStartEvent) *vendors.Error {
	begun, ok := e.Start.(*types.ContentBlockStartMemberToolUse)
	if !ok {
		return nil
	}
	if s.begun++; s.begun > maxBlocks {
		return s.call.tooMany()
	}
	u := &use{ours: begun.Value.Type != types.ToolUseTypeServerToolUse}
	s.uses[value(e.ContentBlockIndex)] = u
	if !u.ours {
		return nil
	}
	if text(begun.Value.Name) == "" {
		return s.call.unavailable("answered with a tool call without a name")
	}
	u.index = int32(len(s.calls))
	s.calls = append(s.calls, u)
	id := callID(begun.Value.ToolUseId, int(u.index))
	s.steps = append(s.steps, step{call: id})
	out.ToolCallChunks = []*ktmsv1.ToolCallChunk{{
		Index: u.index, Id: id, Name: s.call.callerName(text(begun.Value.Name)), Type: "function",
	}}
	return nil
}

func (s *stream) delta(out *ktmsv1.GenerateTextChunk, e *types.ContentBlockDeltaEvent) *vendors.Error {
	index := value(e.ContentBlockIndex)
	switch d := e.Delta.(type) {
	case *types.ContentBlockDeltaMemberText:
		out.Delta = valid(d.Value)
		s.tell(out.GetDelta())
	case *types.ContentBlockDeltaMemberReasoningContent:
		t := s.thoughts[index]
		if t == nil {
			if len(s.thoughts) == maxBlocks {
				return s.call.tooMany()
			}
			t = &streamedThought{}
			s.thoughts[index] = t
			s.steps = append(s.steps, step{thought: t})
		}
		switch r := d.Value.(type) {
		case *types.ReasoningContentBlockDeltaMemberText:
			out.ReasoningDelta = valid(r.Value)
			t.text = append(t.text, out.GetReasoningDelta()...)
		case *types.ReasoningContentBlockDeltaMemberSignature:
			t.signature = append(t.signature, r.Value...)
		case *types.ReasoningContentBlockDeltaMemberRedactedContent:
			t.redacted = append(t.redacted, r.Value...)
		}
	case *types.ContentBlockDeltaMemberToolUse:
		u := s.uses[index]
		if u == nil {
			return s.call.unavailable("answered with a piece of a tool call that never began")
		}
		if piece := text(d.Value.Input); piece != "" && u.ours {
			u.arguments = true
			out.ToolCallChunks = []*ktmsv1.ToolCallChunk{{Index: u.index, Arguments: piece}}
		}
	}
	return nil
}

func (s *stream) stop(out *ktmsv1.GenerateTextChunk, e *types.MessageStopEvent) {
	s.finished = true
	ending, failed := s.call.finish(string(e.StopReason), s.said, len(s.calls) > 0)
	if failed == nil && ending.blocked && !s.said {
		failed = s.call.blocked(string(e.StopReason), "")
	}
	if failed != nil {
		s.failed = failed
		return
	}
	// A block that nobody ended is over now.
	for _, u := range s.calls {
		if !u.arguments {
			out.ToolCallChunks = append(out.ToolCallChunks, &ktmsv1.ToolCallChunk{Index: u.index, Arguments: "{}"})
		}
	}
	out.FinishReason, out.RawFinishReason = ending.ours, valid(ending.raw)
	out.Opaque = s.order().Seal(dialect, s.call.target.Model)
}

func (s *stream) metadata(out *ktmsv1.GenerateTextChunk, e *types.ConverseStreamMetadataEvent) {
	if s.counted {
		return
	}
	s.counted = true
	out.Usage = usage(e.Usage)
	if s.failed != nil {
		s.failed.Usage = out.GetUsage()
	}
	if e.ServiceTier != nil {
		out.ServiceTier = valid(string(e.ServiceTier.Type))
	}
	if e.Trace != nil && e.Trace.PromptRouter != nil {
		out.VendorModel = text(e.Trace.PromptRouter.InvokedModelId)
	}
}
