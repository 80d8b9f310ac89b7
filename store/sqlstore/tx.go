package sqlstore

import (
	"context"
	"fmt"

	"github.com/ai-process/ktms/store"
)

var _ store.Tx = (*Tx)(nil)

// Tx does the work within one Update and remembers what it touched.
//
// Writers exclude each other, so a check followed by a write is as good as a constraint, and unlike a violated
// constraint it does not end a transaction of Postgres. The constraints are there for whoever writes by hand.
type Tx struct {
	q       Querier
	version int64
	dirty   bool
	all     bool
	hashes  map[[32]byte]struct{}
}

// Begin starts an Update within q, a transaction that excludes every other one.
func Begin(ctx context.Context, q Querier) (*Tx, error) {
	version, err := readVersion(ctx, q)
	if err != nil {
		return nil, err
	}
	return &Tx{q: q, version: version, hashes: make(map[[32]byte]struct{})}, nil
}

// Finish raises the version if anything was written. It is the last query before the commit; when nothing was written
// there is nothing to commit.
func (t *Tx) Finish(ctx context.Context) (change store.Change, dirty bool, err error) {
	change.Version = t.version
	if !t.dirty {
		return change, false, nil
	}
	change.Version++
	if _, err := t.q.Exec(ctx, `UPDATE config_version SET version = $1`, change.Version); err != nil {
		return store.Change{}, false, fmt.Errorf("raise the config version: %w", err)
	}
	if t.all {
		change.All = true
		return change, true, nil
	}
	for hash := range t.hashes {
		change.KeyHashes = append(change.KeyHashes, hash)
	}
	return change, true, nil
}

// Config reads the configuration as this transaction will leave it; its version is the one before.
func (t *Tx) Config(ctx context.Context) (*store.Config, error) {
	return ReadConfig(ctx, t.q)
}

// write runs a statement and marks the transaction dirty when it changed a row.
func (t *Tx) write(ctx context.Context, query string, args ...any) (int64, error) {
	changed, err := t.q.Exec(ctx, query, args...)
	if changed > 0 {
		t.dirty = true
	}
	return changed, err
}

// writeOne is write for a statement that names one row: none changed is the error given.
func (t *Tx) writeOne(ctx context.Context, none error, query string, args ...any) error {
	changed, err := t.write(ctx, query, args...)
	if err == nil && changed == 0 {
		return none
	}
	return err
}

// count answers a SELECT COUNT(*).
func (t *Tx) count(ctx context.Context, query string, args ...any) (int, error) {
	var number int
	err := t.q.QueryRow(ctx, query, args...).Scan(&number)
	return number, err
}

// require returns the error given unless the SELECT COUNT(*) counts something.
func (t *Tx) require(ctx context.Context, none error, query string, args ...any) error {
	number, err := t.count(ctx, query, args...)
	if err == nil && number == 0 {
		return none
	}
	return err
}

// forbid returns the error given when the SELECT COUNT(*) counts something.
func (t *Tx) forbid(ctx context.Context, some error, query string, args ...any) error {
	number, err := t.count(ctx, query, args...)
	if err == nil && number > 0 {
		return some
	}
	return err
}
