package gateway

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/vendors"
)

// streamOut passes one attempt's events on, holding back what has no content, so that an early failure can still fall
// back to another model.
type streamOut struct {
	call    *call
	attempt *dispatch.Attempt
	sink    Sink
	head    vendors.Head
	// accepted: the vendor took the call, and bills what it read.
	accepted bool
	// held is the content-free preamble, merged; its vendor fields go out with the first content.
	held *ktmsv1.GenerateTextChunk
	sent bool
	// untaken are parameters that were left out because of their price.
	untaken []string
	// begun is the input side of the usage, where the vendor told it at the start.
	begun *ktmsv1.TokensUsage
	// said counts what the stream says, for a vendor that does not.
	said admit.Counter
	// finished: the answer is whole, and so is a usage that was told.
	finished bool
}

// take passes an event on.
func (o *streamOut) take(event vendors.Event) error {
	o.hear(event)
	chunk := event.Chunk
	if chunk == nil {
		return nil
	}
	if !o.sent {
		if !vendors.HasContent(chunk) {
			o.hold(chunk)
			return nil
		}
		if err := o.first(chunk); err != nil {
			return err
		}
	}
	return o.sink.Send(chunk)
}

// hear accounts for an event.
func (o *streamOut) hear(event vendors.Event) {
	if event.Head != nil {
		o.head, o.accepted = *event.Head, true
		o.call.node = event.Head.Node
		o.head.Dropped = append(o.head.Dropped, o.untaken...)
		return
	}
	chunk := event.Chunk
	o.said.AddChunk(chunk)
	o.finished = o.finished || chunk.GetFinishReason() != ""
	if u := chunk.GetUsage(); u.GetEstimated() {
		o.begun, chunk.Usage = u, nil
	} else if u != nil {
		o.call.completeUsage(u, o.said.Tokens)
		o.call.believe(o.attempt, u, o.said.Tokens)
		account(o.attempt, u)
	}
}

// hold merges a preamble into those before it; the last word on each field counts.
func (o *streamOut) hold(chunk *ktmsv1.GenerateTextChunk) {
	if o.held == nil {
		o.held = chunk
		return
	}
	proto.Merge(o.held, chunk)
}

// first commits the attempt and puts onto the first chunk how the answer came about.
func (o *streamOut) first(chunk *ktmsv1.GenerateTextChunk) error {
	o.attempt.Commit()
	o.sent = true
	c, candidate := o.call, o.attempt.Candidate
	chunk.RequestId = c.id
	chunk.ResolvedModel = candidate.Spec.GetId()
	chunk.ResolvedVendor = candidate.Spec.GetVendor()
	chunk.MatchedRule = c.plan.Rule
	chunk.RouteMode = string(c.plan.Mode)
	chunk.Placement = string(c.plan.Placement)
	chunk.DroppedParams = o.head.Dropped
	if h := o.held; h != nil {
		chunk.VendorResponseId = firstOf(chunk.GetVendorResponseId(), h.GetVendorResponseId())
		chunk.VendorModel = firstOf(chunk.GetVendorModel(), h.GetVendorModel())
		chunk.SystemFingerprint = firstOf(chunk.GetSystemFingerprint(), h.GetSystemFingerprint())
		chunk.ServiceTier = firstOf(chunk.GetServiceTier(), h.GetServiceTier())
		if chunk.Usage == nil {
			chunk.Usage = h.GetUsage()
		}
	}
	return o.sink.Head(&Head{RequestID: c.id, Model: chunk.GetResolvedModel(), Vendor: chunk.GetResolvedVendor(),
		Rule: c.plan.Rule, Mode: chunk.GetRouteMode(), Placement: chunk.GetPlacement(), Dropped: o.head.Dropped,
		Allowances: c.account.Allowances()})
}

// finish checks that the vendor said anything at all; a dialect already refuses a stream without an end.
func (o *streamOut) finish() error {
	if !o.sent {
		return &vendors.Error{Kind: vendors.Unavailable, Vendor: o.attempt.Candidate.Target.Vendor, Message: "the stream ended without content"}
	}
	if o.attempt.Usage() == nil {
		return o.sink.Send(&ktmsv1.GenerateTextChunk{Usage: o.estimate()})
	}
	return nil
}

// broken accounts for a stream that ended before its usage came. What it said was generated, and will be billed; so will
// the prompt of a vendor that had taken it, when the caller left or it went silent. A vendor that failed before it said
// anything bills nothing.
func (o *streamOut) broken(ctx context.Context, err error) {
	failed, _ := errors.AsType[*vendors.Error](err)
	switch {
	case failed != nil && failed.Usage != nil:
		o.counted(failed.Usage)
	case o.attempt.Usage() != nil:
		o.counted(o.attempt.Usage())
	case o.sent || o.accepted && ctx.Err() != nil:
		o.estimate()
	default:
		o.call.accountFailure(o.attempt, err)
	}
}

// counted accounts for what the vendor counted of an answer that was cut. Some count while they speak: it is at least what
// they had said.
func (o *streamOut) counted(u *ktmsv1.TokensUsage) {
	o.call.believe(o.attempt, u, o.said.Tokens)
	if said := o.said.Tokens(); !o.finished && said > u.GetOutput() {
		u = proto.CloneOf(u)
		u.Output, u.Estimated = said, true
	}
	account(o.attempt, u)
}

func (o *streamOut) estimate() *ktmsv1.TokensUsage {
	u := o.begun
	if u == nil {
		u = &ktmsv1.TokensUsage{Input: o.call.input(), Estimated: true}
	}
	u.Output = o.said.Tokens()
	account(o.attempt, u)
	return u
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
