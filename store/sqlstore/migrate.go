package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ai-process/ktms/store"
)

// Exclusive runs fn in one transaction while no other process is in such a transaction on the same database.
type Exclusive func(ctx context.Context, fn func(ctx context.Context, q Querier) error) error

// Migrate applies the *.sql files at the root of files, in the order of their names and each in a transaction of its
// own, that are not recorded yet. A recorded file whose content differs is an error. Recorded files that are not among
// these are fine: a newer release added them, and it only adds.
func Migrate(ctx context.Context, files fs.FS, exclusive Exclusive) error {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		return err
	}
	for _, name := range names {
		script, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		err = exclusive(ctx, func(ctx context.Context, q Querier) error { return applyOnce(ctx, q, name, script) })
		if err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
	}
	return nil
}

func applyOnce(ctx context.Context, q Querier, name string, script []byte) error {
	_, err := q.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (
		name       TEXT NOT NULL PRIMARY KEY,
		checksum   TEXT NOT NULL,
		applied_at TEXT NOT NULL
	)`)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(script)
	checksum := hex.EncodeToString(sum[:])

	var recorded string
	err = q.QueryRow(ctx, `SELECT checksum FROM schema_migrations WHERE name = $1`, name).Scan(&recorded)
	switch {
	case err == nil && recorded == checksum:
		return nil
	case err == nil:
		return errors.New("its content differs from what was applied to this database; a released file never changes")
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	if _, err := q.Exec(ctx, string(script)); err != nil {
		return err
	}
	_, err = q.Exec(ctx, `INSERT INTO schema_migrations (name, checksum, applied_at) VALUES ($1, $2, $3)`,
		name, checksum, time.Now().UTC().Format(time.RFC3339))
	return err
}
