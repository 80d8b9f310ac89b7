package sqlstore

import (
	"context"
	"fmt"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

const vendorKeyColumns = `v.key_id, k.name, v.vendor, v.sealed, v.fingerprint, v.updated_at
	FROM vendor_keys v JOIN api_keys k ON k.id = v.key_id`

// ReadConfig reads the whole configuration with several queries; q must be a transaction that sees one snapshot.
func ReadConfig(ctx context.Context, q Querier) (*store.Config, error) {
	config := new(store.Config)
	var err error
	if config.Version, err = readVersion(ctx, q); err != nil {
		return nil, err
	}
	if config.Models, err = collect(ctx, q, scanModel, `SELECT id, spec FROM models ORDER BY id`); err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	config.Rules, err = collect(ctx, q, scanRule, `SELECT ordinal, spec FROM rules ORDER BY priority DESC, ordinal`)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	config.Organizations, err = collect(ctx, q, scanOrganization,
		`SELECT id, name, created_at FROM organizations ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("organizations: %w", err)
	}
	config.Teams, err = collect(ctx, q, scanTeam,
		`SELECT id, org_id, name, monthly_budget_nano_usd, allowed_models, created_at FROM teams ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("teams: %w", err)
	}
	config.VendorKeys, err = collect(ctx, q, scanVendorKey,
		`SELECT `+vendorKeyColumns+` WHERE k.revoked_at IS NULL ORDER BY k.name, v.vendor`)
	if err != nil {
		return nil, fmt.Errorf("vendor keys: %w", err)
	}
	if config.SpendLimits, err = collect(ctx, q, scanSpendLimit, listSpendLimits); err != nil {
		return nil, fmt.Errorf("spend limits: %w", err)
	}
	if config.UserRateLimits, err = collect(ctx, q, scanUserRateLimit, listUserRateLimits); err != nil {
		return nil, fmt.Errorf("user rate limits: %w", err)
	}
	return config, nil
}

func scanModel(row Row) (*ktmsv1.ModelSpec, error) {
	var id, spec string
	if err := row.Scan(&id, &spec); err != nil {
		return nil, err
	}
	model := new(ktmsv1.ModelSpec)
	if err := decodeMessage(spec, model); err != nil {
		return nil, fmt.Errorf("%q: %w", id, err)
	}
	return model, nil
}

func scanRule(row Row) (*ktmsv1.RuleSpec, error) {
	var (
		ordinal int64
		spec    string
	)
	if err := row.Scan(&ordinal, &spec); err != nil {
		return nil, err
	}
	rule := new(ktmsv1.RuleSpec)
	if err := decodeMessage(spec, rule); err != nil {
		return nil, fmt.Errorf("number %d: %w", ordinal, err)
	}
	return rule, nil
}

func scanOrganization(row Row) (store.Organization, error) {
	var org store.Organization
	err := row.Scan(&org.ID, &org.Name, &org.CreatedAt)
	org.CreatedAt = org.CreatedAt.UTC()
	return org, err
}

func scanTeam(row Row) (store.Team, error) {
	var (
		team   store.Team
		models string
	)
	err := row.Scan(&team.ID, &team.OrgID, &team.Name, &team.MonthlyBudgetNanoUSD, &models, &team.CreatedAt)
	if err != nil {
		return store.Team{}, err
	}
	if team.AllowedModels, err = decodeList(models); err != nil {
		return store.Team{}, fmt.Errorf("%s: allowed models: %w", team.ID, err)
	}
	team.CreatedAt = team.CreatedAt.UTC()
	return team, nil
}

func scanVendorKey(row Row) (store.VendorKey, error) {
	var key store.VendorKey
	err := row.Scan(&key.KeyID, &key.KeyName, &key.Vendor, &key.Sealed, &key.Fingerprint, &key.UpdatedAt)
	key.UpdatedAt = key.UpdatedAt.UTC()
	return key, err
}
