package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/ai-process/ktms/store"
)

// SQLSTATE codes that mean something to the callers of a store.
const (
	uniqueViolation    = "23505"
	undefinedTable     = "42P01"
	readOnly           = "25006" // connected to a standby, as during a failover
	idleInTransaction  = "25P03" // the server ended a transaction that did nothing for too long
	lockNotAvailable   = "55P03"
	serialization      = "40001"
	deadlock           = "40P01"
	classConnection    = "08"
	classResources     = "53" // too many connections, out of memory, disk full
	classIntervention  = "57" // shutting down, starting up, query canceled
	classSystem        = "58" // I/O errors
	classAuthorization = "28" // the credentials are being exchanged, or wrong
)

// translate turns an error of pgx into the store's. ctx is the caller's, without the store's own deadline: only its
// cancellation is the caller's doing.
func translate(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case errors.Is(err, pgx.ErrNoRows):
		return store.ErrNotFound
	case isUnavailable(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case sqlState(err) == uniqueViolation:
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	return err
}

func isUnavailable(err error) bool {
	switch state := sqlState(err); state {
	case "":
	case readOnly, idleInTransaction, lockNotAvailable, serialization, deadlock:
		return true
	default:
		switch state[:2] {
		case classConnection, classResources, classIntervention, classSystem, classAuthorization:
			return true
		}
		return false
	}
	var (
		connect *pgconn.ConnectError
		network net.Error
	)
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, puddle.ErrClosedPool)
}

func isUndefinedTable(err error) bool { return sqlState(err) == undefinedTable }

// sqlState is the server's code for an error, empty when it is not the server's.
func sqlState(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) && len(server.Code) == 5 {
		return server.Code
	}
	return ""
}
