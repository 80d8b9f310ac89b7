package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ai-process/ktms/migrations"
	"github.com/ai-process/ktms/store/postgres"
	"github.com/ai-process/ktms/store/sqlite"
	"github.com/ai-process/ktms/store/storetest"
)

// kinds pairs the types of Postgres with those of SQLite.
var kinds = map[string]string{
	"text":                     "TEXT",
	"bytea":                    "BLOB",
	"bigint":                   "INTEGER",
	"integer":                  "INTEGER",
	"timestamp with time zone": "TIMESTAMP",
}

// The shape of a database: one line for each column, unique constraint and foreign key.
type shape map[string]bool

func TestDialectsHaveTheSameTables(t *testing.T) {
	inPostgres, inSQLite := postgresShape(t), sqliteShape(t)
	for _, line := range slices.Sorted(maps.Keys(inPostgres)) {
		if !inSQLite[line] {
			t.Errorf("in Postgres alone: %s", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(inSQLite)) {
		if !inPostgres[line] {
			t.Errorf("in SQLite alone: %s", line)
		}
	}
	if len(inPostgres) < 40 {
		t.Errorf("the shape has only %d lines", len(inPostgres))
	}
}

// TestNamesSortByteByByte: a column that names something is compared the same way on every server.
func TestNamesSortByteByByte(t *testing.T) {
	conn := migratedPostgres(t)
	const query = `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name <> 'schema_migrations' AND data_type = 'text'
		AND (column_name IN ('id', 'name', 'vendor', 'subject_type', 'period') OR column_name LIKE '%\_id')
		AND collation_name IS DISTINCT FROM 'C'`
	if wrong := lines(t, conn, query); len(wrong) > 0 {
		t.Errorf("without COLLATE \"C\": %q", wrong)
	}
}

func TestFilesAreNumbered(t *testing.T) {
	numbered := regexp.MustCompile(`^\d{4}_[a-z0-9_]+\.sql$`)
	var folders [2][]string
	for i, files := range []fs.FS{migrations.Postgres(), migrations.SQLite()} {
		names, err := fs.Glob(files, "*")
		if err != nil {
			t.Fatal(err)
		}
		for n, name := range names {
			if !numbered.MatchString(name) || !strings.HasPrefix(name, fmt.Sprintf("%04d", n+1)) {
				t.Errorf("file %d is named %s", n+1, name)
			}
		}
		folders[i] = names
	}
	if !slices.Equal(folders[0], folders[1]) {
		t.Errorf("Postgres has %q, SQLite %q", folders[0], folders[1])
	}
}

func migratedPostgres(t *testing.T) *pgx.Conn {
	t.Helper()
	dsn := storetest.Postgres(t)
	s, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, MinConns: 1, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func lines(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func postgresShape(t *testing.T) shape {
	conn := migratedPostgres(t)
	found := make(shape)
	for _, line := range lines(t, conn, `
		SELECT table_name || '.' || column_name || '|' || data_type || '|' || is_nullable
		FROM information_schema.columns WHERE table_schema = 'public'`) {
		part := strings.Split(line, "|")
		kind, known := kinds[part[1]]
		if !known {
			t.Errorf("%s has the type %s, which has no counterpart here", part[0], part[1])
		}
		found[column(part[0], kind, part[2] == "YES")] = true
	}
	for _, line := range lines(t, conn, `
		SELECT c.conrelid::regclass || '|' || c.contype::text || '|' || COALESCE(c.confrelid::regclass::text, '-') || '|' || (
			SELECT string_agg(a.attname, ',' ORDER BY key.position)
			FROM unnest(c.conkey) WITH ORDINALITY AS key (number, position)
			JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = key.number)
		FROM pg_constraint c WHERE c.contype IN ('p', 'u', 'f') AND c.connamespace = 'public'::regnamespace`) {
		part := strings.Split(line, "|")
		switch part[1] {
		case "f":
			found[fmt.Sprintf("%s: (%s) refers to %s", part[0], part[3], part[2])] = true
		default:
			found[fmt.Sprintf("%s: (%s) is unique", part[0], part[3])] = true
		}
	}
	return found
}

func column(name, kind string, nullable bool) string {
	if nullable {
		return fmt.Sprintf("%s: %s", name, kind)
	}
	return fmt.Sprintf("%s: %s NOT NULL", name, kind)
}

func sqliteShape(t *testing.T) shape {
	path := filepath.Join(t.TempDir(), "ktms.db")
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })

	found := make(shape)
	for _, table := range query(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table'`) {
		for _, line := range query(t, db, `
			SELECT name || '|' || type || '|' || ("notnull" OR pk > 0 AND type = 'INTEGER') FROM pragma_table_info($1)`, table) {
			part := strings.Split(line, "|")
			found[column(table+"."+part[0], part[1], part[2] == "0")] = true
		}
		unique := query(t, db, `
			SELECT (SELECT group_concat(name, ',') FROM pragma_index_info(list.name)) FROM pragma_index_list($1) list
			WHERE "unique"`, table)
		// An integer primary key needs no index.
		unique = append(unique, query(t, db, `SELECT name FROM pragma_table_info($1) WHERE pk > 0 AND type = 'INTEGER'`, table)...)
		for _, columns := range unique {
			found[fmt.Sprintf("%s: (%s) is unique", table, columns)] = true
		}
		for _, line := range query(t, db, `
			SELECT "table" || '|' || group_concat("from", ',') FROM pragma_foreign_key_list($1) GROUP BY id`, table) {
			part := strings.Split(line, "|")
			found[fmt.Sprintf("%s: (%s) refers to %s", table, part[1], part[0])] = true
		}
	}
	return found
}

func query(t *testing.T, db *sql.DB, text string, args ...any) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
