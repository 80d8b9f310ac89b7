package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ai-process/ktms/store"
)

// errClosed is what database/sql says after Close. It is not exported there.
const errClosed = "sql: database is closed"

// translate turns an error of SQLite into the store's. ctx is the caller's, without the store's own deadline: only its
// cancellation is the caller's doing.
func translate(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case errors.Is(err, sql.ErrNoRows):
		return store.ErrNotFound
	case isUnavailable(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	switch code(err) {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	return err
}

func isUnavailable(err error) bool {
	switch code(err) & 0xff { // the low byte is the kind, the rest says more
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) ||
		err.Error() == errClosed
}

// code is SQLite's code for an error, 0 when it is not SQLite's.
func code(err error) int {
	if own, ok := errors.AsType[*sqlite.Error](err); ok {
		return own.Code()
	}
	return 0
}
