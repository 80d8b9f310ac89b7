package gateway

import (
	"context"

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
func (s *Service) Embed(ctx context.Context, req *ktmsv1.GetEmbeddingsRequest) (response *ktmsv1.GetEmbeddingsResponse, head *Head, err error) {
	c := s.begin(ctx, req.GetActionId(), false)
	c.embed = req
	err = s.recorded(c, func() (err error) {
		response, err = s.embed(c, req)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return response, &Head{RequestID: c.id, Model: response.GetResolvedModel(), Vendor: response.GetResolvedVendor(),
		Mode: string(c.plan.Mode), Placement: response.GetPlacement(), Dropped: response.GetDroppedParams(),
		Allowances: c.account.Allowances()}, nil
}

func (s *Service) embed(c *call, req *ktmsv1.GetEmbeddingsRequest) (response *ktmsv1.GetEmbeddingsResponse, err error) {
	placement, err := s.validateEmbed(req)
	if err != nil {
		return nil, err
	}
	q := routing.Query{Model: req.GetModel(), Attributes: req.GetAttributes(), Placement: placement, Needs: []string{capabilityEmbedding}}
	table := s.options.Table()
	if c.plan, err = table.Plan(c.caller, q, s.options.View); err != nil {
		return nil, err
	}
	c.account = s.options.Admission.Open(admit.Call{ID: c.id, Caller: c.caller, Limits: table, Input: c.input,
		UserID: req.GetAttributes()[routing.AttrUserID]})
	c.outcome, err = s.options.Dispatcher.Walk(c.ctx, c.plan, c.account, func(ctx context.Context, a *dispatch.Attempt) error {
		vendor, err := s.vendorOf(a.Candidate)
		if err != nil {
			return err
		}
		embedder, can := vendor.(vendors.Embedder)
		if !can {
			return &vendors.Error{Kind: vendors.Unsupported, Vendor: a.Candidate.Target.Vendor, Param: "model", Message: "this vendor has no embeddings"}
		}
		answer, err := embedder.Embed(ctx, c.target(a), req)
		if err != nil {
			c.accountFailure(a, err)
			return err
		}
		if answer.GetUsage().GetInput() == 0 {
			answer.Usage = &ktmsv1.TokensUsage{Input: c.input(), Estimated: true}
		}
		c.believe(a, answer.Usage, nothing)
		account(a, answer.Usage)
		answer.ResolvedModel, answer.ResolvedVendor, answer.RequestId = a.Candidate.Spec.GetId(), a.Candidate.Spec.GetVendor(), c.id
		answer.Placement = string(c.plan.Placement)
		response = answer
		return nil
	})
	return response, err
}

// validateEmbed checks the rules beside the fields, then what they cannot express.
func (s *Service) validateEmbed(req *ktmsv1.GetEmbeddingsRequest) (routing.Placement, error) {
	if err := s.options.Validator.Validate(req); err != nil {
		return "", err
	}
	if choice, err := routing.ParseModel(req.GetModel()); err != nil || choice.Exact == "" {
		e := status.New(status.BadRequest, "embeddings need the exact id of a model; %q would let the rules choose", req.GetModel())
		e.Param = "model"
		return "", e
	}
	found := reservedAttributes(nil, req.GetAttributes())
	if text := req.GetExtraJson(); text != "" && !isObject(text) {
		found = append(found, status.Violation{Path: "extra_json", Text: "must be one JSON object"})
	}
	if len(found) > 0 {
		return "", status.Invalid(found)
	}
	return routing.ParsePlacement(req.GetPlacement())
}
