package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ai-process/ktms/store"
)

const nodeKeyColumns = `id, name, node_id, hash, prefix, allowed_models, allowed_cidrs, created_at, revoked_at`

const (
	nodeKeyByHash = `SELECT ` + nodeKeyColumns + ` FROM node_keys WHERE hash = $1`
	nodeKeyByName = `SELECT ` + nodeKeyColumns + ` FROM node_keys WHERE name = $1`
	listNodeKeys  = `SELECT ` + nodeKeyColumns + ` FROM node_keys WHERE name > $1 AND ($2 OR revoked_at IS NULL)
		ORDER BY name LIMIT $3`
)

// NodeKeyByHash is the read that a node's call makes when its key is not cached.
func (r Reads) NodeKeyByHash(ctx context.Context, hash [32]byte) (store.NodeKey, error) {
	key, err := scanNodeKey(r.q.QueryRow(ctx, nodeKeyByHash, hash[:]))
	if err != nil {
		return store.NodeKey{}, fmt.Errorf("node key by hash: %w", err)
	}
	return key, nil
}

// ListNodeKeys returns one page of node keys by name.
func (r Reads) ListNodeKeys(ctx context.Context, after string, limit int, includeRevoked bool) ([]store.NodeKey, error) {
	if limit <= 0 {
		return nil, nil
	}
	keys, err := collect(ctx, r.q, scanNodeKey, listNodeKeys, after, includeRevoked, limit)
	if err != nil {
		return nil, fmt.Errorf("list node keys: %w", err)
	}
	return keys, nil
}

// NodeKeyByName finds a node key, a revoked one too.
func (t *Tx) NodeKeyByName(ctx context.Context, name string) (store.NodeKey, error) {
	key, err := scanNodeKey(t.q.QueryRow(ctx, nodeKeyByName, name))
	if err != nil {
		return store.NodeKey{}, fmt.Errorf("node key %q: %w", name, err)
	}
	return key, nil
}

// InsertNodeKey adds a node key. Its hash counts as changed, since others may remember that there was no such key.
func (t *Tx) InsertNodeKey(ctx context.Context, key store.NodeKey) error {
	if err := t.insertNodeKey(ctx, key); err != nil {
		return fmt.Errorf("insert node key %q: %w", key.Name, err)
	}
	t.hashes[key.Hash] = struct{}{}
	return nil
}

func (t *Tx) insertNodeKey(ctx context.Context, key store.NodeKey) error {
	models, err := encodeList(key.AllowedModels)
	if err != nil {
		return err
	}
	networks := make([]string, 0, len(key.AllowedCIDRs))
	for _, network := range key.AllowedCIDRs {
		networks = append(networks, network.String())
	}
	cidrs, err := encodeList(networks)
	if err != nil {
		return err
	}
	return t.writeOne(ctx, store.ErrExists, `
		INSERT INTO node_keys (id, name, node_id, hash, prefix, allowed_models, allowed_cidrs, created_at, revoked_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT DO NOTHING`,
		key.ID, key.Name, key.NodeID, key.Hash[:], key.Prefix, models, cidrs, instant(key.CreatedAt),
		optionalInstant(key.RevokedAt))
}

// RevokeNodeKey ends a node key; ending it again changes nothing.
func (t *Tx) RevokeNodeKey(ctx context.Context, id string, at time.Time) error {
	err := t.updateKey(ctx,
		`UPDATE node_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING hash`, id, instant(at))
	if errors.Is(err, store.ErrNotFound) {
		err = t.require(ctx, store.ErrNotFound, `SELECT COUNT(*) FROM node_keys WHERE id = $1`, id)
	}
	if err != nil {
		return fmt.Errorf("revoke node key %s: %w", id, err)
	}
	return nil
}

func scanNodeKey(row Row) (store.NodeKey, error) {
	var (
		key           store.NodeKey
		hash          []byte
		models, cidrs string
		revokedAt     *time.Time
	)
	err := row.Scan(&key.ID, &key.Name, &key.NodeID, &hash, &key.Prefix, &models, &cidrs, &key.CreatedAt, &revokedAt)
	if err != nil {
		return store.NodeKey{}, err
	}
	if copy(key.Hash[:], hash) != len(key.Hash) {
		return store.NodeKey{}, fmt.Errorf("node key %s: its hash has %d bytes", key.ID, len(hash))
	}
	if key.AllowedModels, err = decodeList(models); err != nil {
		return store.NodeKey{}, fmt.Errorf("node key %s: allowed models: %w", key.ID, err)
	}
	networks, err := decodeList(cidrs)
	if err != nil {
		return store.NodeKey{}, fmt.Errorf("node key %s: allowed networks: %w", key.ID, err)
	}
	for _, text := range networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return store.NodeKey{}, fmt.Errorf("node key %s: allowed networks: %w", key.ID, err)
		}
		key.AllowedCIDRs = append(key.AllowedCIDRs, network)
	}
	key.CreatedAt = key.CreatedAt.UTC()
	if revokedAt != nil {
		key.RevokedAt = revokedAt.UTC()
	}
	return key, nil
}
