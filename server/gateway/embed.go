package gateway

import (
	"context"
	"math"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// capabilityEmbedding is what a model has to declare to serve Embed.
const capabilityEmbedding = "embedding"

// Embed turns texts into vectors. The model is the one that was named, always: vectors of two models have nothing to
// do with each other, and an index that holds both is ruined without a sign of it.
func (s *Service) Embed(ctx context.Context, req *ktmsv1.GetEmbeddingsRequest) (response *ktmsv1.GetEmbeddingsResponse, err error) {
	c := s.begin(ctx, req.GetActionId(), false)
	defer func() { s.record(c, err) }()
	if err = s.validateEmbed(req); err != nil {
		return nil, err
	}
	q := routing.Query{Model: req.GetModel(), Attributes: req.GetAttributes(), Needs: []string{capabilityEmbedding}}
	if c.plan, err = s.options.Table().Plan(c.caller, q, s.options.View); err != nil {
		return nil, err
	}
	c.outcome, err = s.options.Dispatcher.Walk(ctx, c.plan, func(ctx context.Context, a *dispatch.Attempt) error {
		vendor, err := s.vendorOf(a.Candidate)
		if err != nil {
			return err
		}
		embedder, can := vendor.(vendors.Embedder)
		if !can {
			return &vendors.Error{Kind: vendors.Unsupported, Vendor: a.Candidate.Target.Vendor, Param: "model", Message: "this vendor has no embeddings"}
		}
		answer, err := embedder.Embed(ctx, a.Candidate.Target, req)
		if err != nil {
			return err
		}
		if !finite(answer) {
			return &vendors.Error{Kind: vendors.Unavailable, Vendor: a.Candidate.Target.Vendor, Message: "answered with vectors that hold no numbers"}
		}
		if answer.Usage == nil {
			answer.Usage = &ktmsv1.TokensUsage{Input: admit.EstimateEmbeddings(req), Estimated: true}
		}
		account(a, answer.Usage)
		answer.ResolvedModel, answer.ResolvedVendor, answer.RequestId = a.Candidate.Spec.GetId(), a.Candidate.Spec.GetVendor(), c.id
		response = answer
		return nil
	})
	return response, err
}

// validateEmbed checks the rules beside the fields, then what they cannot express.
func (s *Service) validateEmbed(req *ktmsv1.GetEmbeddingsRequest) error {
	if err := s.options.Validator.Validate(req); err != nil {
		return err
	}
	if choice, err := routing.ParseModel(req.GetModel()); err != nil || choice.Exact == "" {
		e := status.New(status.BadRequest, "embeddings need the exact id of a model; %q would let the rules choose", req.GetModel())
		e.Param = "model"
		return e
	}
	var found []status.Violation
	found = reservedAttributes(found, req.GetAttributes())
	if len(found) > 0 {
		return status.Invalid(found)
	}
	return nil
}

func finite(r *ktmsv1.GetEmbeddingsResponse) bool {
	for _, e := range r.GetEmbeddings() {
		for _, x := range e.GetVector() {
			if x := float64(x); math.IsNaN(x) || math.IsInf(x, 0) {
				return false
			}
		}
	}
	return true
}
