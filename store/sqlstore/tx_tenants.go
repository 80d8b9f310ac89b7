package sqlstore

import (
	"context"
	"fmt"

	"github.com/ai-process/ktms/store"
)

func (t *Tx) requireOrganization(ctx context.Context, id string) error {
	return t.require(ctx, fmt.Errorf("organization %s: %w", id, store.ErrNotFound),
		`SELECT COUNT(*) FROM organizations WHERE id = $1`, id)
}

// InsertOrganization adds one.
func (t *Tx) InsertOrganization(ctx context.Context, org store.Organization) error {
	err := t.writeOne(ctx, store.ErrExists, `
		INSERT INTO organizations (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		org.ID, org.Name, instant(org.CreatedAt))
	if err != nil {
		return fmt.Errorf("insert organization %q: %w", org.Name, err)
	}
	return nil
}

// UpdateOrganization renames one; the time of its creation stays.
func (t *Tx) UpdateOrganization(ctx context.Context, org store.Organization) error {
	err := t.forbid(ctx, store.ErrExists,
		`SELECT COUNT(*) FROM organizations WHERE name = $1 AND id <> $2`, org.Name, org.ID)
	if err == nil {
		err = t.writeOne(ctx, store.ErrNotFound, `UPDATE organizations SET name = $2 WHERE id = $1`, org.ID, org.Name)
	}
	if err != nil {
		return fmt.Errorf("update organization %s: %w", org.ID, err)
	}
	return nil
}

// DeleteOrganization removes one that nothing belongs to.
func (t *Tx) DeleteOrganization(ctx context.Context, id string) error {
	err := t.forbid(ctx, fmt.Errorf("it has teams: %w", store.ErrInUse),
		`SELECT COUNT(*) FROM teams WHERE org_id = $1`, id)
	if err == nil {
		err = t.forbid(ctx, fmt.Errorf("it has keys: %w", store.ErrInUse),
			`SELECT COUNT(*) FROM api_keys WHERE org_id = $1`, id)
	}
	if err == nil {
		err = t.writeOne(ctx, store.ErrNotFound, `DELETE FROM organizations WHERE id = $1`, id)
	}
	if err != nil {
		return fmt.Errorf("delete organization %s: %w", id, err)
	}
	t.all = true
	return nil
}

// InsertTeam adds one.
func (t *Tx) InsertTeam(ctx context.Context, team store.Team) error {
	if err := t.insertTeam(ctx, team); err != nil {
		return fmt.Errorf("insert team %q: %w", team.Name, err)
	}
	return nil
}

func (t *Tx) insertTeam(ctx context.Context, team store.Team) error {
	if err := t.requireOrganization(ctx, team.OrgID); err != nil {
		return err
	}
	models, err := encodeList(team.AllowedModels)
	if err != nil {
		return err
	}
	return t.writeOne(ctx, store.ErrExists, `
		INSERT INTO teams (id, org_id, name, monthly_budget_nano_usd, allowed_models, created_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		team.ID, team.OrgID, team.Name, team.MonthlyBudgetNanoUSD, models, instant(team.CreatedAt))
}

// UpdateTeam replaces name, budget and models; the organization and the time of its creation stay.
func (t *Tx) UpdateTeam(ctx context.Context, team store.Team) error {
	if err := t.updateTeam(ctx, team); err != nil {
		return fmt.Errorf("update team %s: %w", team.ID, err)
	}
	return nil
}

func (t *Tx) updateTeam(ctx context.Context, team store.Team) error {
	err := t.forbid(ctx, store.ErrExists, `
		SELECT COUNT(*) FROM teams other JOIN teams this ON this.org_id = other.org_id
		WHERE this.id = $1 AND other.id <> $1 AND other.name = $2`, team.ID, team.Name)
	if err != nil {
		return err
	}
	models, err := encodeList(team.AllowedModels)
	if err != nil {
		return err
	}
	return t.writeOne(ctx, store.ErrNotFound, `
		UPDATE teams SET name = $2, monthly_budget_nano_usd = $3, allowed_models = $4 WHERE id = $1`,
		team.ID, team.Name, team.MonthlyBudgetNanoUSD, models)
}

// DeleteTeam removes one that no key belongs to.
func (t *Tx) DeleteTeam(ctx context.Context, id string) error {
	err := t.forbid(ctx, fmt.Errorf("it has keys: %w", store.ErrInUse),
		`SELECT COUNT(*) FROM api_keys WHERE team_id = $1`, id)
	if err == nil {
		err = t.writeOne(ctx, store.ErrNotFound, `DELETE FROM teams WHERE id = $1`, id)
	}
	if err != nil {
		return fmt.Errorf("delete team %s: %w", id, err)
	}
	t.all = true
	return nil
}
