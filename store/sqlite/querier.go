package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/ai-process/ktms/store/sqlstore"
)

// database is what a pool and a transaction have in common.
type database interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// querier adapts database/sql: it bounds each query and translates errors.
type querier struct {
	db      database
	timeout time.Duration
}

func (q querier) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	bound, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	result, err := q.db.ExecContext(bound, query, args...)
	if err != nil {
		return 0, translate(ctx, err)
	}
	changed, err := result.RowsAffected()
	return changed, translate(ctx, err)
}

func (q querier) QueryRow(ctx context.Context, query string, args ...any) sqlstore.Row {
	bound, cancel := context.WithTimeout(ctx, q.timeout)
	return row{q.db.QueryRowContext(bound, query, args...), ctx, cancel}
}

func (q querier) Query(ctx context.Context, query string, args ...any) (sqlstore.Rows, error) {
	bound, cancel := context.WithTimeout(ctx, q.timeout)
	result, err := q.db.QueryContext(bound, query, args...)
	if err != nil {
		cancel()
		return nil, translate(ctx, err)
	}
	return rows{result, ctx, cancel}, nil
}

// row keeps its query's deadline until it is read, and the caller's context to tell whose fault an error is.
type row struct {
	*sql.Row
	ctx    context.Context
	cancel context.CancelFunc
}

func (r row) Scan(into ...any) error {
	defer r.cancel()
	return translate(r.ctx, r.Row.Scan(into...))
}

// rows is row for several.
type rows struct {
	*sql.Rows
	ctx    context.Context
	cancel context.CancelFunc
}

func (r rows) Scan(into ...any) error { return translate(r.ctx, r.Rows.Scan(into...)) }

func (r rows) Err() error { return translate(r.ctx, r.Rows.Err()) }

func (r rows) Close() {
	r.Rows.Close()
	r.cancel()
}
