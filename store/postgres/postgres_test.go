package postgres

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ai-process/ktms/migrations"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/sqlstore"
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
	return open(t, Options{DSN: dsn, MinConns: 1, Migrate: true})
}

func open(t testing.TB, options Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestOpenTogether: replicas of a first deployment start on one empty database.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			s, err := Open(t.Context(), Options{DSN: dsn, MinConns: 1, Migrate: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Config(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, storetest.Postgres(t))
	storetest.RunMigrations(t, func(files fs.FS) error { return sqlstore.Migrate(t.Context(), files, s.exclusive) })
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	bare := &Store{pool: pool, timeout: DefaultTimeout}
	storetest.RunUpgrade(t, storetest.Upgrade{
		Files:   migrations.Postgres(),
		Migrate: func(files fs.FS) error { return sqlstore.Migrate(t.Context(), files, bare.exclusive) },
		Bytes:   "BYTEA",
		Open:    func() store.Store { return mustOpen(t, dsn) },
	})
}

// TestMigrationsByHand: with migrations off every table must be there, however it came; on later, they pass over.
func TestMigrationsByHand(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	names, err := fs.Glob(migrations.Postgres(), "*.sql")
	if err != nil || len(names) < 2 {
		t.Fatalf("migrations are %q, %v", names, err)
	}
	for _, name := range names {
		// Also after an upgrade that the tables did not follow.
		_, err := Open(t.Context(), Options{DSN: dsn})
		if err == nil || !strings.Contains(err.Error(), "tables are missing") {
			t.Fatalf("before %s: got %v", name, err)
		}
		script, err := fs.ReadFile(migrations.Postgres(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), string(script)); err != nil {
			t.Fatal(err)
		}
	}
	for _, migrate := range []bool{false, true, true} {
		s := open(t, Options{DSN: dsn, MinConns: 1, Migrate: migrate})
		if version, err := s.ConfigVersion(t.Context()); err != nil || version == 0 {
			t.Errorf("migrate %t: version %d, %v", migrate, version, err)
		}
	}
}

// TestMigrationThatWaitsTooLong: another replica is at it and does not finish.
func TestMigrationThatWaitsTooLong(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	s := mustOpen(t, dsn)
	err := s.exclusive(t.Context(), func(ctx context.Context, _ sqlstore.Querier) error {
		_, err := Open(ctx, Options{DSN: dsn, Migrate: true, MigrateTimeout: 300 * time.Millisecond})
		return err
	})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
}

// TestWriterThatWaitsTooLong: another writer holds the lock for longer than the timeout.
func TestWriterThatWaitsTooLong(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	holder := mustOpen(t, dsn)
	impatient := open(t, Options{DSN: dsn, MinConns: 1, Timeout: 500 * time.Millisecond})
	nothing := func(context.Context, store.Tx) error { return nil }
	_, err := holder.Update(t.Context(), func(ctx context.Context, _ store.Tx) error {
		_, err := impatient.Update(ctx, nothing)
		return err
	})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	storetest.Eventually(t, patience, "the holder is gone and the lock is free", func() bool {
		_, err := impatient.Update(t.Context(), nothing)
		return err == nil
	})
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://anna:hunter2@host:port/x", "password=hunter2 port=x", "postgres://anna:hunter2@%zz/"} {
		_, err := Open(t.Context(), Options{DSN: dsn})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", dsn, err)
		}
	}
	// Nothing listens on port 1.
	_, err := Open(t.Context(), Options{DSN: "postgres://anna:hunter2@127.0.0.1:1/x?sslmode=disable"})
	if !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("without a server: got %v, want unavailable", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options       Options
		maxConns, min int32
		connect       time.Duration
		application   string
	}{
		"defaults": {Options{DSN: "postgres://h/x"}, 25, 5, 3 * time.Second, "ktms"},
		"a small pool": {Options{DSN: "postgres://h/x?application_name=mine", MaxConns: 2}, 2, 2, 3 * time.Second,
			"mine"},
		"the address outranks the timeout": {Options{DSN: "postgres://h/x?connect_timeout=7", Timeout: time.Second}, 25, 5,
			7 * time.Second, "ktms"},
		"the timeout": {Options{DSN: "postgres://h/x", Timeout: time.Second}, 25, 5, time.Second, "ktms"},
	} {
		config, err := poolConfig(test.options.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		if config.MaxConns != test.maxConns || config.MinConns != test.min ||
			config.ConnConfig.ConnectTimeout != test.connect ||
			config.ConnConfig.RuntimeParams["application_name"] != test.application {
			t.Errorf("%s: got %d, %d, %s, %q", name, config.MaxConns, config.MinConns, config.ConnConfig.ConnectTimeout,
				config.ConnConfig.RuntimeParams["application_name"])
		}
	}
}

// BenchmarkKeyByHash is what a call waits for when its key is not cached.
func BenchmarkKeyByHash(b *testing.B) {
	storetest.BenchmarkKeyByHash(b, mustOpen(b, storetest.Postgres(b)))
}
