package gateway

import (
	"context"
	"errors"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// call is one client call on its way.
type call struct {
	ctx     context.Context
	id      string
	caller  *caller.Caller
	req     *ktmsv1.GenerateTextRequest  // of a text call
	embed   *ktmsv1.GetEmbeddingsRequest // of a call for embeddings
	action  string
	stream  bool
	started time.Time
	plan    *routing.Plan
	account *admit.Account
	shapes  *shapes
	// estimate is of the prompt, in tokens; 0 until somebody needs it.
	estimate int64
	outcome  dispatch.Outcome
	// node is the machine of the local pool that answered, or began to; empty = none.
	node string
}

func (c *call) rule() string {
	if c.plan == nil {
		return ""
	}
	return c.plan.Rule
}

// Generate answers a text request in one piece. The head says how the answer came about, for headers.
func (s *Service) Generate(ctx context.Context, req *ktmsv1.GenerateTextRequest) (response *ktmsv1.GenerateTextResponse, head *Head, err error) {
	c := s.begin(ctx, req.GetActionId(), false)
	c.req = req
	err = s.recorded(c, func() (err error) {
		response, err = s.generate(c)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return response, c.headOf(response), nil
}

func (s *Service) generate(c *call) (response *ktmsv1.GenerateTextResponse, err error) {
	if err = s.route(c); err != nil {
		return nil, err
	}
	c.outcome, err = s.options.Dispatcher.Walk(c.ctx, c.plan, c.account, func(ctx context.Context, a *dispatch.Attempt) error {
		vendor, err := s.vendorOf(a.Candidate)
		if err != nil {
			return err
		}
		req, untaken, err := requestFor(a.Candidate, c.req)
		if err != nil {
			return err
		}
		answer, err := vendor.Generate(ctx, c.target(a), req)
		if err != nil {
			c.accountFailure(a, err)
			return err
		}
		answer.Head.Dropped = append(answer.Head.Dropped, untaken...)
		c.node = answer.Head.Node
		c.accountAnswer(a, answer.Response)
		if err := c.shapes.check(a.Candidate.Target.Vendor, answer); err != nil {
			return err
		}
		response = answer.Response
		c.complete(response, a.Candidate, answer.Head)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if truncated(c.req, response) {
		return nil, status.New(status.OutputTruncated,
			"the answer hit its token ceiling before it was complete; raise max_output_tokens (max_tokens)")
	}
	return response, nil
}

// Stream answers a text request as it is written. What the sink received before an error stays valid: the error came
// after it.
func (s *Service) Stream(ctx context.Context, req *ktmsv1.GenerateTextRequest, sink Sink) error {
	c := s.begin(ctx, req.GetActionId(), true)
	c.req = req
	return s.recorded(c, func() error { return s.stream(c, sink) })
}

func (s *Service) stream(c *call, sink Sink) (err error) {
	if err = s.route(c); err != nil {
		return err
	}
	c.outcome, err = s.options.Dispatcher.Walk(c.ctx, c.plan, c.account, func(ctx context.Context, a *dispatch.Attempt) error {
		vendor, err := s.vendorOf(a.Candidate)
		if err != nil {
			return err
		}
		req, untaken, err := requestFor(a.Candidate, c.req)
		if err != nil {
			return err
		}
		out := streamOut{call: c, attempt: a, sink: sink, untaken: untaken}
		ended := false
		defer func() {
			if !ended { // a panic: what was said is billed all the same
				out.broken(ctx, errPanicked)
			}
		}()
		var left error
		for event, err := range vendor.Stream(ctx, c.target(a), req) {
			if err != nil {
				ended = true
				out.broken(ctx, err)
				return firstError(left, err)
			}
			if left != nil {
				out.hear(event)
				continue
			}
			a.Handing()
			if left = out.take(event); left != nil {
				a.Left() // and hear out what it cost
				continue
			}
			a.Alive()
		}
		ended = true
		if left != nil {
			out.broken(ctx, left)
			return left
		}
		return out.finish()
	})
	return err
}

// errPanicked is what the log says of a call that ended in a panic, which the server deals with.
var errPanicked = errors.New("a panic ended the call")

// recorded runs a call, closes its account and leaves its one line in the log, whatever it ends in.
func (s *Service) recorded(c *call, run func() error) error {
	err := errPanicked
	defer func() {
		c.account.Close()
		s.record(c, err)
	}()
	err = run()
	return err
}

func (s *Service) begin(ctx context.Context, action string, stream bool) *call {
	return &call{ctx: ctx, id: caller.RequestID(ctx), caller: caller.From(ctx), action: action, stream: stream, started: time.Now()}
}

// route validates the request, once for both doors, and plans where it may go.
func (s *Service) route(c *call) error {
	if err := s.validate(c.req); err != nil {
		return err
	}
	q, err := query(c.req)
	if err != nil {
		return err
	}
	table := s.options.Table()
	if c.plan, err = table.Plan(c.caller, q, s.options.View); err != nil {
		return err
	}
	if c.shapes, err = s.shapesOf(c.req); err != nil {
		return err
	}
	c.account = s.options.Admission.Open(s.limited(c, table))
	return nil
}

// complete adds to a vendor's answer how it came about.
func (c *call) complete(r *ktmsv1.GenerateTextResponse, candidate *routing.Candidate, head vendors.Head) {
	r.RequestId = c.id
	r.ResolvedModel = candidate.Spec.GetId()
	r.ResolvedVendor = candidate.Spec.GetVendor()
	r.MatchedRule = c.plan.Rule
	r.RouteMode = string(c.plan.Mode)
	r.Placement = string(c.plan.Placement)
	r.DroppedParams = head.Dropped
}

// truncated reports whether an answer that hit its ceiling is of no use: a cut JSON document, a cut strict call, or
// nothing visible at all. Cut free text is kept.
func truncated(req *ktmsv1.GenerateTextRequest, r *ktmsv1.GenerateTextResponse) bool {
	schema := req.GetResponseSchema() != nil || req.GetResponseSchemaJson() != "" || req.GetJsonObject()
	strict := map[string]bool{}
	for _, tool := range req.GetTools() {
		strict[tool.GetName()] = tool.GetStrict()
	}
	for _, choice := range r.GetChoices() {
		if choice.GetFinishReason() != "length" {
			continue
		}
		if schema || (choice.GetText() == "" && len(choice.GetToolCalls()) == 0 && choice.GetRefusal() == "") {
			return true
		}
		for _, tool := range choice.GetToolCalls() {
			if strict[tool.GetName()] {
				return true
			}
		}
	}
	return false
}
