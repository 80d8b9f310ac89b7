package storetest

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// RunMigrations is the suite for applying migrations to one fresh database.
func RunMigrations(t *testing.T, migrate func(files fs.FS) error) {
	files := func(pairs ...string) fs.FS {
		all := fstest.MapFS{"README.md": {Data: []byte("not a migration")}}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return all
	}
	// Each fails when it runs twice or in another order.
	const (
		first  = `CREATE TABLE suite_a (id INTEGER PRIMARY KEY); INSERT INTO suite_a (id) VALUES (1);`
		second = `-- two statements; one transaction
			ALTER TABLE suite_a ADD COLUMN name TEXT; INSERT INTO suite_a (id, name) VALUES (2, 'two');`
		broken = `CREATE TABLE suite_b (id INTEGER); INSERT INTO suite_nowhere (id) VALUES (1);`
		mended = `CREATE TABLE suite_b (id INTEGER);`
	)
	for _, step := range []struct {
		name, mistake string
		files         fs.FS
	}{
		{"the first", "", files("0901_a.sql", first)},
		{"one more", "", files("0902_b.sql", second, "0901_a.sql", first)},
		{"nothing more", "", files("0901_a.sql", first, "0902_b.sql", second)},
		{"an older release", "", files("0901_a.sql", first)},
		{"a changed file", "migration 0901_a.sql: its content differs", files("0901_a.sql", first+" ")},
		{"a broken file", "migration 0903_c.sql: ", files("0901_a.sql", first, "0903_c.sql", broken)},
		{"the broken file left nothing behind", "", files("0901_a.sql", first, "0903_c.sql", mended)},
	} {
		switch err := migrate(step.files); {
		case step.mistake == "" && err != nil:
			t.Fatalf("%s: %v", step.name, err)
		case step.mistake != "" && (err == nil || !strings.Contains(err.Error(), step.mistake)):
			t.Errorf("%s: got %v, want %q", step.name, err, step.mistake)
		}
	}
}
