package bedrock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/schemas"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/transport/http/protocol/restjson1"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
)

const (
	// maxEvent bounds an event. Tool arguments reach several megabytes; beyond this a stream is broken or hostile.
	maxEvent = 64 << 20
	// drainTime bounds the reading after the last event. The end of the body is all that should come, and reading it lets
	// the connection serve the next call; a server that keeps the stream open is not waited for.
	drainTime = 250 * time.Millisecond
	// maxCalls of one answer: more are a fault, and each one is remembered.
	maxCalls = 1024
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
	drained := false
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

// end says what a stream ended in. A connection that was cut after the finish took nothing away but the usage.
func (s *stream) end(ctx context.Context, err, cause error, drained bool) *vendors.Error {
	if drained {
		return nil
	}
	if ctx.Err() != nil {
		return transport.Failure(ctx, s.call.target.Vendor, ctx.Err())
	}
	if errors.Is(cause, errEventTooLong) {
		e := s.call.unavailable("sent an event that is too long")
		e.Err = cause
		return e
	}
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		return s.call.streamError(said)
	}
	if cut := cause != nil || errors.Is(err, io.EOF); cut && s.finished {
		return nil
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
	// uses are the calls by the index of their block.
	uses  map[int32]*use
	calls int32 // that are the caller's to answer
	// thoughts are the blocks of reasoning by their index, order as they came.
	thoughts map[int32]*thought
	order    []*thought
	said     bool // something that the caller has
	finished bool
	counted  bool // the usage came
}

// use is a call that began.
type use struct {
	index     int32
	ours      bool // to be answered by the caller
	arguments bool // some came
}

func newStream(c *call) *stream {
	return &stream{call: c, uses: map[int32]*use{}, thoughts: map[int32]*thought{}}
}

// take reads an event. It returns nil for one that says nothing to the caller.
func (s *stream) take(event any) (*ktmsv1.GenerateTextChunk, *vendors.Error) {
	out := &ktmsv1.GenerateTextChunk{}
	var failed *vendors.Error
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
		failed = s.stop(out, e)
	case *types.ConverseStreamMetadataEvent:
		s.metadata(out, e)
	}
	if failed != nil {
		return nil, failed
	}
	s.said = s.said || vendors.HasContent(out)
	if !vendors.HasContent(out) && out.GetUsage() == nil && out.GetVendorModel() == "" && out.GetServiceTier() == "" {
		return nil, nil
	}
	return out, nil
}

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
	u := &use{ours: begun.Value.Type != types.ToolUseTypeServerToolUse}
	s.uses[value(e.ContentBlockIndex)] = u
	if !u.ours {
		return nil
	}
	if text(begun.Value.Name) == "" {
		return s.call.unavailable("answered with a tool call without a name")
	}
	if u.index = s.calls; u.index >= maxCalls {
		return s.call.unavailable("answered with more tool calls than can be")
	}
	s.calls++
	out.ToolCallChunks = []*ktmsv1.ToolCallChunk{{
		Index: u.index, Id: text(begun.Value.ToolUseId), Name: s.call.callerName(text(begun.Value.Name)), Type: "function",
	}}
	return nil
}

func (s *stream) delta(out *ktmsv1.GenerateTextChunk, e *types.ContentBlockDeltaEvent) *vendors.Error {
	index := value(e.ContentBlockIndex)
	switch d := e.Delta.(type) {
	case *types.ContentBlockDeltaMemberText:
		out.Delta = d.Value
	case *types.ContentBlockDeltaMemberReasoningContent:
		t := s.thoughts[index]
		if t == nil {
			t = &thought{}
			s.thoughts[index] = t
			s.order = append(s.order, t)
		}
		switch r := d.Value.(type) {
		case *types.ReasoningContentBlockDeltaMemberText:
			t.Text += r.Value
			out.ReasoningDelta = r.Value
		case *types.ReasoningContentBlockDeltaMemberSignature:
			t.Signature += r.Value
		case *types.ReasoningContentBlockDeltaMemberRedactedContent:
			t.Redacted = append(t.Redacted, r.Value...)
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

func (s *stream) stop(out *ktmsv1.GenerateTextChunk, e *types.MessageStopEvent) *vendors.Error {
	if s.finished {
		return nil
	}
	ending, failed := s.call.finish(string(e.StopReason), s.said, s.calls > 0)
	if failed != nil {
		return failed
	}
	if ending.blocked && !s.said {
		return s.call.blocked(string(e.StopReason), "")
	}
	s.finished = true
	out.FinishReason, out.RawFinishReason = ending.ours, ending.raw
	thoughts := make([]thought, 0, len(s.order))
	for _, t := range s.order {
		thoughts = append(thoughts, *t)
	}
	out.Opaque = sealReasoning(s.call.target.Model, thoughts)
	return nil
}

func (s *stream) metadata(out *ktmsv1.GenerateTextChunk, e *types.ConverseStreamMetadataEvent) {
	if s.counted {
		return
	}
	s.counted = true
	out.Usage = usage(e.Usage)
	if e.ServiceTier != nil {
		out.ServiceTier = string(e.ServiceTier.Type)
	}
	if e.Trace != nil && e.Trace.PromptRouter != nil {
		out.VendorModel = text(e.Trace.PromptRouter.InvokedModelId)
	}
}
