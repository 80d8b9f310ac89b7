package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

// KeyByName finds a key, a revoked one too.
func (t *Tx) KeyByName(ctx context.Context, name string) (store.Key, error) {
	return Reads{t.q}.KeyByName(ctx, name)
}

// KeyByID finds a key, a revoked one too.
func (t *Tx) KeyByID(ctx context.Context, id string) (store.Key, error) {
	key, err := scanKey(t.q.QueryRow(ctx, keyByID, id))
	if err != nil {
		return store.Key{}, fmt.Errorf("key %s: %w", id, err)
	}
	return key, nil
}

// InsertKey adds a key. Its hash counts as changed, since others may remember that there was no such key.
func (t *Tx) InsertKey(ctx context.Context, key store.Key) error {
	if err := t.insertKey(ctx, key); err != nil {
		return fmt.Errorf("insert key %q: %w", key.Name, err)
	}
	t.hashes[key.Hash] = struct{}{}
	return nil
}

func (t *Tx) insertKey(ctx context.Context, key store.Key) error {
	if err := t.requireTenant(ctx, key.OrgID, key.TeamID); err != nil {
		return err
	}
	scopes, err := encodeList(key.Scopes)
	if err != nil {
		return err
	}
	policy, err := encodeMessage(key.Policy)
	if err != nil {
		return err
	}
	return t.writeOne(ctx, store.ErrExists, `
		INSERT INTO api_keys (id, name, hash, prefix, scopes, org_id, team_id, policy, created_at, revoked_at)
		VALUES ($1, $2, $3, $4, $5, NULLIF($6, ''), NULLIF($7, ''), $8, $9, $10)
		ON CONFLICT DO NOTHING`,
		key.ID, key.Name, key.Hash[:], key.Prefix, scopes, key.OrgID, key.TeamID, policy, instant(key.CreatedAt),
		optionalInstant(key.RevokedAt))
}

func (t *Tx) requireTenant(ctx context.Context, orgID, teamID string) error {
	switch {
	case teamID != "":
		return t.require(ctx, fmt.Errorf("team %s of organization %s: %w", teamID, orgID, store.ErrNotFound),
			`SELECT COUNT(*) FROM teams WHERE id = $1 AND org_id = $2`, teamID, orgID)
	case orgID != "":
		return t.requireOrganization(ctx, orgID)
	}
	return nil
}

// SetKeyPolicy replaces a key's policy.
func (t *Tx) SetKeyPolicy(ctx context.Context, id string, policy *ktmsv1.APIKeyPolicy) error {
	text, err := encodeMessage(policy)
	if err == nil {
		err = t.updateKey(ctx, `UPDATE api_keys SET policy = $2 WHERE id = $1 RETURNING hash`, id, text)
	}
	if err != nil {
		return fmt.Errorf("set policy of key %s: %w", id, err)
	}
	return nil
}

// RevokeKey ends a key; ending it again changes nothing.
func (t *Tx) RevokeKey(ctx context.Context, id string, at time.Time) error {
	err := t.updateKey(ctx,
		`UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING hash`, id, instant(at))
	if errors.Is(err, store.ErrNotFound) {
		err = t.require(ctx, store.ErrNotFound, `SELECT COUNT(*) FROM api_keys WHERE id = $1`, id)
	}
	if err != nil {
		return fmt.Errorf("revoke key %s: %w", id, err)
	}
	return nil
}

// updateKey runs an UPDATE of one key that returns its hash. ErrNotFound when no row matched.
func (t *Tx) updateKey(ctx context.Context, query string, args ...any) error {
	var hash []byte
	if err := t.q.QueryRow(ctx, query, args...).Scan(&hash); err != nil {
		return err
	}
	t.dirty = true
	t.hashes[[32]byte(hash)] = struct{}{}
	return nil
}

// ActiveKeys counts the active keys of an organization or of one of its teams.
func (t *Tx) ActiveKeys(ctx context.Context, orgID, teamID string) (int, error) {
	number, err := t.count(ctx, `
		SELECT COUNT(*) FROM api_keys
		WHERE revoked_at IS NULL AND org_id = $1 AND ($2 = '' OR team_id = $2)`, orgID, teamID)
	if err != nil {
		return 0, fmt.Errorf("active keys: %w", err)
	}
	return number, nil
}

// DetachKeys removes an organization or one of its teams from revoked keys.
func (t *Tx) DetachKeys(ctx context.Context, orgID, teamID string) error {
	query, args := `UPDATE api_keys SET org_id = NULL, team_id = NULL WHERE revoked_at IS NOT NULL AND org_id = $1`,
		[]any{orgID}
	if teamID != "" {
		query, args = `UPDATE api_keys SET team_id = NULL WHERE revoked_at IS NOT NULL AND org_id = $1 AND team_id = $2`,
			[]any{orgID, teamID}
	}
	changed, err := t.write(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("detach keys: %w", err)
	}
	t.all = t.all || changed > 0
	return nil
}
