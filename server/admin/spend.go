package admin

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// GetSpend implements AdminService. A user is known from its first call on, so that any id has an answer; a key or a team
// that does not exist has none.
func (h *Handler) GetSpend(ctx context.Context, req *ktmsv1.GetSpendRequest) (*ktmsv1.GetSpendResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	kind, id := req.GetSubjectType(), req.GetSubjectId()
	periods := []string{admit.PeriodDay, admit.PeriodMonth}
	switch kind {
	case admit.SubjectKey:
		if _, err := h.options.Store.KeyByName(ctx, id); err != nil {
			return nil, h.refusal(ctx, named(err, "API key", id))
		}
	case admit.SubjectTeam:
		if err := h.hasTeam(ctx, id); err != nil {
			return nil, err
		}
		periods = periods[1:]
	}
	windows, err := h.spend(ctx, kind, id, periods)
	if err != nil {
		return nil, err
	}
	return &ktmsv1.GetSpendResponse{SubjectType: kind, SubjectId: id, Windows: windows}, nil
}

// GetTeamSpend implements AdminService.
func (h *Handler) GetTeamSpend(ctx context.Context, req *ktmsv1.GetTeamSpendRequest) (*ktmsv1.GetTeamSpendResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	if err := h.hasTeam(ctx, req.GetId()); err != nil {
		return nil, err
	}
	windows, err := h.spend(ctx, admit.SubjectTeam, req.GetId(), []string{admit.PeriodMonth})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.GetTeamSpendResponse{Id: req.GetId(), Window: windows[0]}, nil
}

func (h *Handler) hasTeam(ctx context.Context, id string) error {
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return h.refusal(ctx, err)
	}
	if !slices.ContainsFunc(cfg.Teams, func(t store.Team) bool { return t.ID == id }) {
		return status.RPC(status.New(status.NotFound, "no team %q", id))
	}
	return nil
}

func (h *Handler) spend(ctx context.Context, kind, id string, periods []string) ([]*ktmsv1.SpendWindow, error) {
	windows, err := h.options.Spent(ctx, h.options.Table(), kind, id, periods...)
	switch {
	case errors.Is(err, pool.ErrUnavailable):
		return nil, status.RPC(status.Wrap(err, status.SpendUnavailable, "the counters of the spend limits do not answer; retry with backoff"))
	case err != nil:
		return nil, h.refusal(ctx, err)
	}
	out := make([]*ktmsv1.SpendWindow, 0, len(windows))
	for _, w := range windows {
		out = append(out, &ktmsv1.SpendWindow{Period: w.Period, LimitNanousd: w.Limit, SpentNanousd: w.Settled + w.Reserved,
			ReservedNanousd: w.Reserved, RemainingNanousd: w.Remaining, ResetsAt: timestamppb.New(w.Resets), Metered: w.Limit > 0})
	}
	return out, nil
}
