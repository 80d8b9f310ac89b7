package postgres

import (
	"testing"

	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Opener{
		Fresh: func(t *testing.T) func() store.Store {
			dsn := storetest.Postgres(t)
			return func() store.Store { return mustOpen(t, dsn) }
		},
		Shared: true,
	})
}

func mustOpen(t testing.TB, dsn string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{DSN: dsn, MinConns: 1, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
