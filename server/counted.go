package server

import (
	"context"
	"errors"

	"github.com/ai-process/ktms/store"
)

// countedStore counts the calls that the database did not answer, by operation, wherever in the server they are made.
type countedStore struct {
	store.Store
	failed func(operation string)
}

func (c countedStore) count(operation string, err error) {
	if errors.Is(err, store.ErrUnavailable) {
		c.failed(operation)
	}
}

func (c countedStore) KeyByHash(ctx context.Context, hash [32]byte) (store.Key, error) {
	key, err := c.Store.KeyByHash(ctx, hash)
	c.count("key_check", err)
	return key, err
}

func (c countedStore) KeyByName(ctx context.Context, name string) (store.Key, error) {
	key, err := c.Store.KeyByName(ctx, name)
	c.count("admin", err)
	return key, err
}

func (c countedStore) ListKeys(ctx context.Context, after string, limit int, includeRevoked bool) ([]store.Key, error) {
	keys, err := c.Store.ListKeys(ctx, after, limit, includeRevoked)
	c.count("admin", err)
	return keys, err
}

func (c countedStore) NodeKeyByHash(ctx context.Context, hash [32]byte) (store.NodeKey, error) {
	key, err := c.Store.NodeKeyByHash(ctx, hash)
	c.count("key_check", err)
	return key, err
}

func (c countedStore) ListNodeKeys(ctx context.Context, after string, limit int, includeRevoked bool) ([]store.NodeKey, error) {
	keys, err := c.Store.ListNodeKeys(ctx, after, limit, includeRevoked)
	c.count("admin", err)
	return keys, err
}

func (c countedStore) Update(ctx context.Context, fn func(ctx context.Context, tx store.Tx) error) (store.Change, error) {
	change, err := c.Store.Update(ctx, fn)
	c.count("admin", err)
	return change, err
}

func (c countedStore) Config(ctx context.Context) (*store.Config, error) {
	cfg, err := c.Store.Config(ctx)
	c.count("config", err)
	return cfg, err
}

func (c countedStore) ConfigVersion(ctx context.Context) (int64, error) {
	version, err := c.Store.ConfigVersion(ctx)
	c.count("config", err)
	return version, err
}

func (c countedStore) Ping(ctx context.Context) error {
	err := c.Store.Ping(ctx)
	c.count("ping", err)
	return err
}
