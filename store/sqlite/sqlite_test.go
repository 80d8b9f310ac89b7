package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ai-process/ktms/store"
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
