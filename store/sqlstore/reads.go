package sqlstore

import (
	"context"
	"fmt"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

var (
	_ store.Keys     = Reads{}
	_ store.NodeKeys = Reads{}
)

// Reads answers single questions, each with one query.
type Reads struct{ q Querier }

// NewReads reads through q.
func NewReads(q Querier) Reads { return Reads{q} }

const keyColumns = `id, name, hash, prefix, scopes, COALESCE(org_id, ''), COALESCE(team_id, ''), policy, created_at,
	revoked_at`

const (
	keyByHash = `SELECT ` + keyColumns + ` FROM api_keys WHERE hash = $1`
	keyByName = `SELECT ` + keyColumns + ` FROM api_keys WHERE name = $1`
	keyByID   = `SELECT ` + keyColumns + ` FROM api_keys WHERE id = $1`
	listKeys  = `SELECT ` + keyColumns + ` FROM api_keys WHERE name > $1 AND ($2 OR revoked_at IS NULL)
		ORDER BY name LIMIT $3`
)

// KeyByHash is the read that a call makes when its key is not cached.
func (r Reads) KeyByHash(ctx context.Context, hash [32]byte) (store.Key, error) {
	key, err := scanKey(r.q.QueryRow(ctx, keyByHash, hash[:]))
	if err != nil {
		return store.Key{}, fmt.Errorf("key by hash: %w", err)
	}
	return key, nil
}

// KeyByName finds a key, a revoked one too.
func (r Reads) KeyByName(ctx context.Context, name string) (store.Key, error) {
	key, err := scanKey(r.q.QueryRow(ctx, keyByName, name))
	if err != nil {
		return store.Key{}, fmt.Errorf("key %q: %w", name, err)
	}
	return key, nil
}

// ListKeys returns one page of keys by name.
func (r Reads) ListKeys(ctx context.Context, after string, limit int, includeRevoked bool) ([]store.Key, error) {
	if limit <= 0 {
		return nil, nil
	}
	keys, err := collect(ctx, r.q, scanKey, listKeys, after, includeRevoked, limit)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// ConfigVersion reads the version alone.
func (r Reads) ConfigVersion(ctx context.Context) (int64, error) {
	return readVersion(ctx, r.q)
}

func readVersion(ctx context.Context, q Querier) (int64, error) {
	var version int64
	if err := q.QueryRow(ctx, `SELECT version FROM config_version`).Scan(&version); err != nil {
		return 0, fmt.Errorf("config version: %w", err)
	}
	return version, nil
}

func scanKey(row Row) (store.Key, error) {
	var (
		key            store.Key
		hash           []byte
		scopes, policy string
		revokedAt      *time.Time
	)
	err := row.Scan(&key.ID, &key.Name, &hash, &key.Prefix, &scopes, &key.OrgID, &key.TeamID, &policy, &key.CreatedAt,
		&revokedAt)
	if err != nil {
		return store.Key{}, err
	}
	if copy(key.Hash[:], hash) != len(key.Hash) {
		return store.Key{}, fmt.Errorf("key %s: its hash has %d bytes", key.ID, len(hash))
	}
	if key.Scopes, err = decodeList(scopes); err != nil {
		return store.Key{}, fmt.Errorf("key %s: scopes: %w", key.ID, err)
	}
	key.Policy = new(ktmsv1.APIKeyPolicy)
	if err := decodeMessage(policy, key.Policy); err != nil {
		return store.Key{}, fmt.Errorf("key %s: %w", key.ID, err)
	}
	key.CreatedAt = key.CreatedAt.UTC()
	if revokedAt != nil {
		key.RevokedAt = revokedAt.UTC()
	}
	return key, nil
}
