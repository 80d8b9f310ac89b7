package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ai-process/ktms/migrations"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/sqlstore"
	"github.com/ai-process/ktms/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Opener{
		Fresh: func(t *testing.T) func() store.Store {
			path := filepath.Join(t.TempDir(), "ktms.db")
			return func() store.Store { return mustOpen(t, path) }
		},
	})
}

func mustOpen(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestMigrations(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "ktms.db"))
	storetest.RunMigrations(t, func(files fs.FS) error { return sqlstore.Migrate(t.Context(), files, s.exclusive) })
}

func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ktms.db")
	writer, err := open(Options{Path: path, Timeout: DefaultTimeout}, "_txlock", "immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	bare := &Store{writer: writer, timeout: DefaultTimeout}
	storetest.RunUpgrade(t, storetest.Upgrade{
		Files:   migrations.SQLite(),
		Migrate: func(files fs.FS) error { return sqlstore.Migrate(t.Context(), files, bare.exclusive) },
		Bytes:   "BLOB",
		Open:    func() store.Store { return mustOpen(t, path) },
	})
}

// TestWriterThatWaitsTooLong: within a process writers queue, between processes they wait for the file.
func TestWriterThatWaitsTooLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ktms.db")
	mustOpen(t, path).Close()
	impatient, err := Open(t.Context(), Options{Path: path, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(impatient.Close)
	nothing := func(context.Context, store.Tx) error { return nil }
	for name, holder := range map[string]*Store{"in this process": impatient, "in another process": mustOpen(t, path)} {
		_, err := holder.Update(t.Context(), func(ctx context.Context, _ store.Tx) error {
			_, err := impatient.Update(ctx, nothing)
			return err
		})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a writer %s: got %v, want unavailable", name, err)
		}
		if _, err := impatient.Update(t.Context(), nothing); err != nil {
			t.Errorf("after the writer %s: %v", name, err)
		}
	}
}

func TestConstraintsAreTranslated(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "ktms.db"))
	q := querier{s.writer, s.timeout}
	insert := func() error {
		_, err := q.Exec(t.Context(), `INSERT INTO organizations (id, name, created_at) VALUES ('a', 'a', 'now')`)
		return err
	}
	if err := insert(); err != nil {
		t.Fatal(err)
	}
	if err := insert(); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same row again: %v", err)
	}
	_, err := q.Exec(t.Context(), `INSERT INTO teams VALUES ('a', 'nobody', 'a', 0, '[]', 'now')`)
	if err == nil {
		t.Error("foreign keys are not enforced")
	}
	if _, err := (querier{s.reader, s.timeout}).Exec(t.Context(), `DELETE FROM models`); err == nil {
		t.Error("the connections that read can write")
	}
}

func TestOpenRefuses(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{"", folder} {
		if s, err := Open(t.Context(), Options{Path: path}); err == nil {
			s.Close()
			t.Errorf("%q was opened", path)
		}
	}
}

func TestFileIsPrivate(t *testing.T) {
	// A name that a database address could take apart.
	folder := filepath.Join(t.TempDir(), "a b?mode=memory#c%20d", ".ktms")
	path := filepath.Join(folder, "ktms.db")
	s := mustOpen(t, path)
	if _, err := s.ConfigVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantMode(t, folder, os.ModeDir|0o700)
	wantMode(t, path, 0o600)
	wantMode(t, path+"-wal", 0o600)
	wantMode(t, path+"-shm", 0o600)
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != want {
		t.Errorf("%s has mode %s, want %s", path, info.Mode(), want)
	}
}

// BenchmarkKeyByHash is what a call waits for when its key is not cached.
func BenchmarkKeyByHash(b *testing.B) {
	storetest.BenchmarkKeyByHash(b, mustOpen(b, filepath.Join(b.TempDir(), "ktms.db")))
}
