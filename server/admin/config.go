package admin

import (
	"context"
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// UpsertModel implements AdminService.
func (h *Handler) UpsertModel(ctx context.Context, req *ktmsv1.UpsertModelRequest) (*ktmsv1.UpsertModelResponse, error) {
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		return tx.PutModel(ctx, req.GetModel())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.UpsertModelResponse{Model: req.GetModel(), ConfigVersion: version}, nil
}

// ListModels implements AdminService.
func (h *Handler) ListModels(ctx context.Context, req *ktmsv1.AdminServiceListModelsRequest) (*ktmsv1.AdminServiceListModelsResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	page, next, err := pageOf(cfg.Models, req.GetPageSize(), req.GetPageToken(), (*ktmsv1.ModelSpec).GetId)
	if err != nil {
		return nil, err
	}
	return &ktmsv1.AdminServiceListModelsResponse{Models: page, NextPageToken: next}, nil
}

// DeleteModel implements AdminService.
func (h *Handler) DeleteModel(ctx context.Context, req *ktmsv1.DeleteModelRequest) (*ktmsv1.DeleteModelResponse, error) {
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		return named(tx.DeleteModel(ctx, req.GetId()), "model", req.GetId())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.DeleteModelResponse{ConfigVersion: version}, nil
}

// ReplaceRules implements AdminService.
func (h *Handler) ReplaceRules(ctx context.Context, req *ktmsv1.ReplaceRulesRequest) (*ktmsv1.ReplaceRulesResponse, error) {
	for i, rule := range req.GetRules() {
		if rule.GetShadowModel() != "" || rule.GetShadowPercentage() != 0 || rule.GetShadowEval() {
			return nil, status.RPC(status.New(status.Unimplemented,
				"rules[%d]: shadow traffic is not built in this release, so it is refused rather than stored", i))
		}
	}
	version, err := h.changeChecked(ctx, req, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceRules(ctx, req.GetRules())
	}, func(ctx context.Context, tx store.Tx) error {
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		cfg.Rules = req.GetRules() // in the caller's order, so that paths name the caller's rules
		return check(cfg)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.ReplaceRulesResponse{Rules: req.GetRules(), ConfigVersion: version}, nil
}

// GetConfig implements AdminService.
func (h *Handler) GetConfig(ctx context.Context, _ *ktmsv1.GetConfigRequest) (*ktmsv1.GetConfigResponse, error) {
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	out := &ktmsv1.GetConfigResponse{ConfigVersion: cfg.Version, Models: cfg.Models, Rules: cfg.Rules,
		VendorKeys: h.vendorKeyInfos(cfg.VendorKeys), UserRateLimits: cfg.UserRateLimits, SpendLimits: cfg.SpendLimits}
	for _, org := range cfg.Organizations {
		out.Organizations = append(out.Organizations, organization(org))
	}
	for _, t := range cfg.Teams {
		out.Teams = append(out.Teams, team(t))
	}
	return out, nil
}

func organization(o store.Organization) *ktmsv1.Organization {
	return &ktmsv1.Organization{Id: o.ID, Name: o.Name, CreatedAt: timestamppb.New(o.CreatedAt)}
}

// nanoUSD is how many billionths a dollar has.
const nanoUSD = 1_000_000_000

// nanos turns an amount in dollars, which the rules beside its field have bounded, into the unit that is counted.
func nanos(usd float64) int64 { return int64(math.Round(usd * nanoUSD)) }

func team(t store.Team) *ktmsv1.Team {
	return &ktmsv1.Team{Id: t.ID, OrgId: t.OrgID, Name: t.Name, AllowedModels: t.AllowedModels,
		MonthlyBudgetUsd: float64(t.MonthlyBudgetNanoUSD) / nanoUSD, CreatedAt: timestamppb.New(t.CreatedAt)}
}
