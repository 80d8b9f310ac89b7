package server

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/ai-process/ktms/store"
)

// broken is a store whose calls all end the same way.
type broken struct {
	store.Store
	err error
}

func (b broken) KeyByHash(context.Context, [32]byte) (store.Key, error) { return store.Key{}, b.err }
func (b broken) KeyByName(context.Context, string) (store.Key, error)   { return store.Key{}, b.err }
func (b broken) ListKeys(context.Context, string, int, bool) ([]store.Key, error) {
	return nil, b.err
}

func (b broken) NodeKeyByHash(context.Context, [32]byte) (store.NodeKey, error) {
	return store.NodeKey{}, b.err
}

func (b broken) ListNodeKeys(context.Context, string, int, bool) ([]store.NodeKey, error) {
	return nil, b.err
}

func (b broken) Update(context.Context, func(context.Context, store.Tx) error) (store.Change, error) {
	return store.Change{}, b.err
}
func (b broken) Config(context.Context) (*store.Config, error) { return nil, b.err }
func (b broken) ConfigVersion(context.Context) (int64, error)  { return 0, b.err }
func (b broken) Ping(context.Context) error                    { return b.err }

func TestCountedStore(t *testing.T) {
	for _, test := range []struct {
		err  error
		want map[string]int
	}{
		{errors.Join(errors.New("x"), store.ErrUnavailable), map[string]int{"key_check": 2, "admin": 4, "config": 2, "ping": 1}},
		{store.ErrNotFound, map[string]int{}},
		{context.Canceled, map[string]int{}},
	} {
		got := map[string]int{}
		s := countedStore{broken{err: test.err}, func(operation string) { got[operation]++ }}
		ctx := t.Context()
		_, _ = s.KeyByHash(ctx, [32]byte{})
		_, _ = s.KeyByName(ctx, "")
		_, _ = s.ListKeys(ctx, "", 1, false)
		_, _ = s.NodeKeyByHash(ctx, [32]byte{})
		_, _ = s.ListNodeKeys(ctx, "", 1, false)
		_, _ = s.Update(ctx, nil)
		_, _ = s.Config(ctx)
		_, _ = s.ConfigVersion(ctx)
		_ = s.Ping(ctx)
		if !maps.Equal(got, test.want) {
			t.Errorf("%v: counted %v, want %v", test.err, got, test.want)
		}
	}
}
