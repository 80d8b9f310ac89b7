package storetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// DatabaseURL names the environment variable with the address of a Postgres server whose user may create databases.
const DatabaseURL = "KTMS_TEST_DATABASE_URL"

// server is the throwaway server of this process, started by the first test that needs one.
var server = sync.OnceValues(startServer)

// Postgres returns the address of a fresh, empty database on a real Postgres. The database is dropped when the test
// ends.
//
// It is on the server that KTMS_TEST_DATABASE_URL names, else on a throwaway server that this process starts from the
// binaries on the machine and that ends with it.
func Postgres(t testing.TB) string {
	t.Helper()
	admin := os.Getenv(DatabaseURL)
	if admin == "" {
		var err error
		if admin, err = server(); err != nil {
			t.Fatalf("no Postgres for this test: %v", err)
		}
	}
	name := "ktms_test_" + strings.ToLower(rand.Text())
	if err := execute(admin, `CREATE DATABASE `+name); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := execute(admin, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	return withDatabase(admin, name)
}

// execute runs one statement on a connection of its own. It has no test's context: it also runs at its cleanup.
func execute(address, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// withDatabase replaces the database in an address, which is a URL or a keyword string.
func withDatabase(address, name string) string {
	if !strings.Contains(address, "://") {
		return address + fmt.Sprintf(" dbname=%s", name) // the last one counts
	}
	parsed, err := url.Parse(address)
	if err != nil { // unreachable: it was connected to
		panic(err)
	}
	parsed.Path = "/" + name
	return parsed.String()
}
