package admin

import (
	"context"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/access"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// ExplainRoute implements AdminService: it prints the plan that a call of this kind would walk.
func (h *Handler) ExplainRoute(ctx context.Context, req *ktmsv1.ExplainRouteRequest) (*ktmsv1.ExplainRouteResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	key, err := h.options.Store.KeyByName(ctx, req.GetApiKeyName())
	if err != nil {
		return nil, h.refusal(ctx, named(err, "API key", req.GetApiKeyName()))
	}
	if !key.RevokedAt.IsZero() {
		return nil, status.RPC(status.New(status.FailedPrecondition, "API key %q is revoked", key.Name))
	}
	query, err := explained(req)
	if err != nil {
		return nil, status.RPC(err)
	}
	plan, refused := h.options.Table().Plan(access.CallerOf(key), query, h.options.View)
	out := &ktmsv1.ExplainRouteResponse{}
	if plan != nil {
		out.MatchedRule, out.RouteMode, out.Placement = plan.Rule, string(plan.Mode), string(plan.Placement)
		out.Effort, out.ConfigVersion = plan.Effort, plan.Version
		for _, c := range plan.Candidates {
			out.Candidates = append(out.Candidates, &ktmsv1.RouteCandidate{Model: c.Target.Model, Vendor: c.Spec.GetVendor(),
				Kept: c.Drop == routing.Kept, Reason: string(c.Drop), Detail: c.Detail, Nodes: h.nodesFor(ctx, c, req)})
		}
	}
	if refused != nil {
		e := status.As(refused)
		out.ErrorReason, out.ErrorMessage = string(e.Reason), e.Message()
	}
	return out, nil
}

// nodesFor tells how the selector sees the nodes for a local candidate. The plan is explained without them, too.
func (h *Handler) nodesFor(ctx context.Context, c routing.Candidate, req *ktmsv1.ExplainRouteRequest) []*ktmsv1.NodeFactor {
	if c.Spec.GetVendor() != vendors.Local {
		return nil
	}
	factors, err := h.weigh(ctx, c.Target.Model, req.GetInputTokens(), req.GetOutputTokens())
	if err != nil {
		h.options.Log.WarnContext(ctx, "a route is explained without its nodes", "model", c.Target.Model, "error", err)
	}
	return factors
}

func explained(req *ktmsv1.ExplainRouteRequest) (routing.Query, error) {
	placement, err := routing.ParsePlacement(req.GetPlacement())
	if err != nil {
		return routing.Query{}, err
	}
	q := routing.Query{
		Model: req.GetModelOverride(), Effort: req.GetEffort(), Placement: placement,
		Attributes: map[string]string{}, Needs: req.GetNeeds(), Tokens: req.GetInputTokens() + req.GetOutputTokens(),
	}
	for name, value := range req.GetAttributes() {
		if name == routing.AttrModality {
			q.Modality = routing.Modality(value)
			continue
		}
		q.Attributes[name] = value
	}
	q.Choose(req.GetAutoRoute(), req.GetEffortSpecified())
	if q.Mode == routing.ModeDirect && q.Effort == ktmsv1.Effort_EFFORT_UNSPECIFIED && q.Modality == routing.Text {
		return q, status.Invalid([]status.Violation{{Path: "effort", Text: "is required unless model_override or auto_route is set"}})
	}
	return q, nil
}
