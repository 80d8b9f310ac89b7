package admin

import (
	"context"
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// SetSpendLimit implements AdminService.
func (h *Handler) SetSpendLimit(ctx context.Context, req *ktmsv1.SetSpendLimitRequest) (*ktmsv1.SetSpendLimitResponse, error) {
	limit := req.GetSpendLimit()
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		if err := requireSubject(ctx, tx, limit); err != nil {
			return err
		}
		return tx.PutSpendLimit(ctx, limit)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.SetSpendLimitResponse{SpendLimit: limit, ConfigVersion: version}, nil
}

// requireSubject refuses a key that does not work, since a misspelt name would be a cap that caps nothing. Users are
// known to their applications alone.
func requireSubject(ctx context.Context, tx store.Tx, limit *ktmsv1.SpendLimit) error {
	if limit.GetSubjectType() != admit.SubjectKey || limit.GetSubjectId() == routing.Everyone {
		return nil
	}
	key, err := findKey(ctx, tx, limit.GetSubjectId(), "")
	if err != nil {
		return err
	}
	if !key.RevokedAt.IsZero() {
		return status.New(status.NotFound, "no API key %q: the one of that name is revoked", key.Name)
	}
	return nil
}

// ListSpendLimits implements AdminService.
func (h *Handler) ListSpendLimits(ctx context.Context, req *ktmsv1.ListSpendLimitsRequest) (*ktmsv1.ListSpendLimitsResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	page, next, err := pageOf(cfg.SpendLimits, req.GetPageSize(), req.GetPageToken(), func(l *ktmsv1.SpendLimit) string {
		return joined(l.GetSubjectType(), l.GetSubjectId(), l.GetPeriod())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.ListSpendLimitsResponse{SpendLimits: page, NextPageToken: next}, nil
}

// DeleteSpendLimit implements AdminService.
func (h *Handler) DeleteSpendLimit(ctx context.Context, req *ktmsv1.DeleteSpendLimitRequest) (*ktmsv1.DeleteSpendLimitResponse, error) {
	subjectType, subjectID, period := req.GetSubjectType(), req.GetSubjectId(), req.GetPeriod()
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		return named(tx.DeleteSpendLimit(ctx, subjectType, subjectID, period), "spend limit", subjectType+"/"+subjectID+"/"+period)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.DeleteSpendLimitResponse{ConfigVersion: version}, nil
}

// SetUserRateLimit implements AdminService.
func (h *Handler) SetUserRateLimit(ctx context.Context, req *ktmsv1.SetUserRateLimitRequest) (*ktmsv1.SetUserRateLimitResponse, error) {
	limit := req.GetUserRateLimit()
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		if err := requireModel(ctx, tx, limit.GetModelId()); err != nil {
			return err
		}
		return tx.PutUserRateLimit(ctx, limit)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.SetUserRateLimitResponse{UserRateLimit: limit, ConfigVersion: version}, nil
}

// requireModel refuses a model that is not in the catalogue, for the reason that requireSubject has.
func requireModel(ctx context.Context, tx store.Tx, id string) error {
	if id == routing.Everyone {
		return nil
	}
	cfg, err := tx.Config(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(cfg.Models, func(m *ktmsv1.ModelSpec) bool { return m.GetId() == id }) {
		return status.New(status.NotFound, "no model %q", id)
	}
	return nil
}

// ListUserRateLimits implements AdminService.
func (h *Handler) ListUserRateLimits(ctx context.Context, req *ktmsv1.ListUserRateLimitsRequest) (*ktmsv1.ListUserRateLimitsResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	page, next, err := pageOf(cfg.UserRateLimits, req.GetPageSize(), req.GetPageToken(), func(l *ktmsv1.UserRateLimit) string {
		return joined(l.GetUserId(), l.GetModelId())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.ListUserRateLimitsResponse{UserRateLimits: page, NextPageToken: next}, nil
}

// DeleteUserRateLimit implements AdminService.
func (h *Handler) DeleteUserRateLimit(ctx context.Context, req *ktmsv1.DeleteUserRateLimitRequest) (*ktmsv1.DeleteUserRateLimitResponse, error) {
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		return named(tx.DeleteUserRateLimit(ctx, req.GetUserId(), req.GetModelId()), "user rate limit", req.GetUserId()+"/"+req.GetModelId())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.DeleteUserRateLimitResponse{ConfigVersion: version}, nil
}

// joined is the place of a row in a list that is ordered by several columns. No part holds a NUL, which sorts before
// everything else, so that the joined names sort as the rows do.
func joined(parts ...string) string { return strings.Join(parts, "\x00") }
