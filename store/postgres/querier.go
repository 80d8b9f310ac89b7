package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ai-process/ktms/store/sqlstore"
)

// unbounded is the timeout of a querier whose queries are bounded by their context alone.
const unbounded = 0

// database is what a pool and a transaction have in common.
type database interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// querier adapts pgx: it bounds each query and translates errors.
type querier struct {
	db      database
	timeout time.Duration
}

func (q querier) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if q.timeout == unbounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, q.timeout)
}

func (q querier) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	bound, cancel := q.bound(ctx)
	defer cancel()
	tag, err := q.db.Exec(bound, query, args...)
	return tag.RowsAffected(), translate(ctx, err)
}

func (q querier) QueryRow(ctx context.Context, query string, args ...any) sqlstore.Row {
	bound, cancel := q.bound(ctx)
	return row{q.db.QueryRow(bound, query, args...), ctx, cancel}
}

func (q querier) Query(ctx context.Context, query string, args ...any) (sqlstore.Rows, error) {
	bound, cancel := q.bound(ctx)
	result, err := q.db.Query(bound, query, args...)
	if err != nil {
		cancel()
		return nil, translate(ctx, err)
	}
	return rows{result, ctx, cancel}, nil
}

// row keeps its query's deadline until it is read, and the caller's context to tell whose fault an error is.
type row struct {
	pgx.Row
	ctx    context.Context
	cancel context.CancelFunc
}

func (r row) Scan(into ...any) error {
	defer r.cancel()
	return translate(r.ctx, r.Row.Scan(into...))
}

// rows is row for several.
type rows struct {
	pgx.Rows
	ctx    context.Context
	cancel context.CancelFunc
}

func (r rows) Scan(into ...any) error { return translate(r.ctx, r.Rows.Scan(into...)) }

func (r rows) Err() error { return translate(r.ctx, r.Rows.Err()) }

func (r rows) Close() {
	r.Rows.Close()
	r.cancel()
}
