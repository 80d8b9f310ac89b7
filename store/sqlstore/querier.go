// Package sqlstore holds the queries of the store, once for every SQL database.
//
// One text serves Postgres and SQLite: placeholders are $1, lists and specs are JSON text, times are truncated to
// microseconds. Connections, transactions, errors and what else differs belong to the packages postgres and sqlite.
package sqlstore

import (
	"context"
)

// Querier is what the queries need of a database or of a transaction in it.
//
// Its errors, and those of its rows, are translated already: store.ErrNotFound for no row, store.ErrExists for a
// violated unique constraint, store.ErrUnavailable when the database did not answer.
type Querier interface {
	// Exec returns how many rows were changed. Without arguments the query may hold several statements.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// Row is one row; its Scan must be called.
type Row interface {
	Scan(into ...any) error
}

// Rows are several; they must be closed, and Err asked after the last Next.
type Rows interface {
	Row
	Next() bool
	Err() error
	Close()
}

// collect reads every row of a query.
func collect[T any](ctx context.Context, q Querier, read func(Row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		one, err := read(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
