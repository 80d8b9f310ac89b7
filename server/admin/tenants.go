package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// CreateOrganization implements AdminService.
func (h *Handler) CreateOrganization(ctx context.Context, req *ktmsv1.CreateOrganizationRequest) (*ktmsv1.CreateOrganizationResponse, error) {
	org := store.Organization{ID: uuid.Must(uuid.NewV7()).String(), Name: req.GetName(), CreatedAt: now()}
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		return named(tx.InsertOrganization(ctx, org), "organization", org.Name)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.CreateOrganizationResponse{Organization: organization(org), ConfigVersion: version}, nil
}

// UpdateOrganization implements AdminService.
func (h *Handler) UpdateOrganization(ctx context.Context, req *ktmsv1.UpdateOrganizationRequest) (*ktmsv1.UpdateOrganizationResponse, error) {
	var org store.Organization
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		if org, err = findOrganization(cfg, req.GetId()); err != nil {
			return err
		}
		org.Name = req.GetName()
		return named(tx.UpdateOrganization(ctx, org), "organization", org.Name)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.UpdateOrganizationResponse{Organization: organization(org), ConfigVersion: version}, nil
}

// ListOrganizations implements AdminService.
func (h *Handler) ListOrganizations(ctx context.Context, req *ktmsv1.ListOrganizationsRequest) (*ktmsv1.ListOrganizationsResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	slices.SortFunc(cfg.Organizations, func(a, b store.Organization) int { return strings.Compare(a.ID, b.ID) })
	page, next, err := pageOf(cfg.Organizations, req.GetPageSize(), req.GetPageToken(), func(o store.Organization) string { return o.ID })
	if err != nil {
		return nil, err
	}
	out := &ktmsv1.ListOrganizationsResponse{NextPageToken: next}
	for _, org := range page {
		out.Organizations = append(out.Organizations, organization(org))
	}
	return out, nil
}

// GetOrganization implements AdminService.
func (h *Handler) GetOrganization(ctx context.Context, req *ktmsv1.GetOrganizationRequest) (*ktmsv1.GetOrganizationResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	org, err := findOrganization(cfg, req.GetId())
	if err != nil {
		return nil, status.RPC(err)
	}
	return &ktmsv1.GetOrganizationResponse{Organization: organization(org)}, nil
}

// DeleteOrganization implements AdminService.
func (h *Handler) DeleteOrganization(ctx context.Context, req *ktmsv1.DeleteOrganizationRequest) (*ktmsv1.DeleteOrganizationResponse, error) {
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		if _, err := findOrganization(cfg, req.GetId()); err != nil {
			return err
		}
		if err := detach(ctx, tx, "organization", req.GetId(), ""); err != nil {
			return err
		}
		for _, t := range cfg.Teams {
			if t.OrgID == req.GetId() {
				if err := tx.DeleteTeam(ctx, t.ID); err != nil {
					return err
				}
			}
		}
		return tx.DeleteOrganization(ctx, req.GetId())
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.DeleteOrganizationResponse{ConfigVersion: version}, nil
}

// detach frees a tenant of its revoked keys; active ones are in the way.
func detach(ctx context.Context, tx store.Tx, kind, orgID, teamID string) error {
	active, err := tx.ActiveKeys(ctx, orgID, teamID)
	if err != nil {
		return err
	}
	if active > 0 {
		return status.New(status.FailedPrecondition, "the %s has %d active keys: revoke or move them first", kind, active)
	}
	return tx.DetachKeys(ctx, orgID, teamID)
}

// CreateTeam implements AdminService.
func (h *Handler) CreateTeam(ctx context.Context, req *ktmsv1.CreateTeamRequest) (*ktmsv1.CreateTeamResponse, error) {
	t := store.Team{ID: uuid.Must(uuid.NewV7()).String(), OrgID: req.GetOrgId(), Name: req.GetName(),
		AllowedModels: req.GetAllowedModels(), CreatedAt: now()}
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		if _, err := findOrganization(cfg, t.OrgID); err != nil {
			return err
		}
		t.MonthlyBudgetNanoUSD = nanos(req.GetMonthlyBudgetUsd())
		return named(tx.InsertTeam(ctx, t), "team", t.Name)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.CreateTeamResponse{Team: team(t), ConfigVersion: version}, nil
}

// UpdateTeam implements AdminService. It replaces the team.
func (h *Handler) UpdateTeam(ctx context.Context, req *ktmsv1.UpdateTeamRequest) (*ktmsv1.UpdateTeamResponse, error) {
	var t store.Team
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		if t, err = findTeam(cfg, req.GetId()); err != nil {
			return err
		}
		t.Name, t.AllowedModels = req.GetName(), req.GetAllowedModels()
		t.MonthlyBudgetNanoUSD = nanos(req.GetMonthlyBudgetUsd())
		return named(tx.UpdateTeam(ctx, t), "team", t.Name)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.UpdateTeamResponse{Team: team(t), ConfigVersion: version}, nil
}

// ListTeams implements AdminService.
func (h *Handler) ListTeams(ctx context.Context, req *ktmsv1.ListTeamsRequest) (*ktmsv1.ListTeamsResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	wanted := make([]store.Team, 0, len(cfg.Teams))
	for _, t := range cfg.Teams {
		if req.GetOrgId() == "" || req.GetOrgId() == t.OrgID {
			wanted = append(wanted, t)
		}
	}
	slices.SortFunc(wanted, func(a, b store.Team) int { return strings.Compare(a.ID, b.ID) })
	page, next, err := pageOf(wanted, req.GetPageSize(), req.GetPageToken(), func(t store.Team) string { return t.ID })
	if err != nil {
		return nil, err
	}
	out := &ktmsv1.ListTeamsResponse{NextPageToken: next}
	for _, t := range page {
		out.Teams = append(out.Teams, team(t))
	}
	return out, nil
}

// GetTeam implements AdminService.
func (h *Handler) GetTeam(ctx context.Context, req *ktmsv1.GetTeamRequest) (*ktmsv1.GetTeamResponse, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, status.RPC(err)
	}
	cfg, err := h.options.Store.Config(ctx)
	if err != nil {
		return nil, h.refusal(ctx, err)
	}
	t, err := findTeam(cfg, req.GetId())
	if err != nil {
		return nil, status.RPC(err)
	}
	return &ktmsv1.GetTeamResponse{Team: team(t)}, nil
}

// DeleteTeam implements AdminService.
func (h *Handler) DeleteTeam(ctx context.Context, req *ktmsv1.DeleteTeamRequest) (*ktmsv1.DeleteTeamResponse, error) {
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) error {
		cfg, err := tx.Config(ctx)
		if err != nil {
			return err
		}
		t, err := findTeam(cfg, req.GetId())
		if err != nil {
			return err
		}
		if err := detach(ctx, tx, "team", t.OrgID, t.ID); err != nil {
			return err
		}
		return tx.DeleteTeam(ctx, t.ID)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.DeleteTeamResponse{ConfigVersion: version}, nil
}

func findOrganization(cfg *store.Config, id string) (store.Organization, error) {
	i := slices.IndexFunc(cfg.Organizations, func(o store.Organization) bool { return o.ID == id })
	if i < 0 {
		return store.Organization{}, status.New(status.NotFound, "no organization %q", id)
	}
	return cfg.Organizations[i], nil
}

func findTeam(cfg *store.Config, id string) (store.Team, error) {
	i := slices.IndexFunc(cfg.Teams, func(t store.Team) bool { return t.ID == id })
	if i < 0 {
		return store.Team{}, status.New(status.NotFound, "no team %q", id)
	}
	return cfg.Teams[i], nil
}
