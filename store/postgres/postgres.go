// Package postgres keeps the store in Postgres, for any number of replicas.
//
// Every replica may write. Writers exclude each other by locking one row, and a committed change reaches the feeds of
// all replicas through LISTEN and NOTIFY, so a pooler between this package and the server must keep sessions whole.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ai-process/ktms/migrations"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/sqlstore"
)

var _ store.Store = (*Store)(nil)

// Defaults of Options.
const (
	DefaultMaxConns       = 25
	DefaultMinConns       = 5
	DefaultTimeout        = 3 * time.Second
	DefaultMigrateTimeout = 3 * time.Minute
)

// lockVersion makes Updates exclude each other on all replicas.
const lockVersion = `SELECT version FROM config_version FOR UPDATE`

// beginUpdate also lets the server give up on a replica that was cut off in the middle of an Update: its lock would
// stop every other writer until TCP notices.
const beginUpdate = `BEGIN; SET LOCAL idle_in_transaction_session_timeout = '15s'`

// migrationLock is the advisory lock of migrations, any number that nothing else in the database uses: "KTMS" in ASCII.
const migrationLock = 0x4b544d53

// Options say where the database is and how to use it. Zero values take the defaults.
type Options struct {
	// DSN is a URL or a keyword string, as libpq takes them.
	DSN string
	// MaxConns bounds the pool. The feed has one connection beside it. Defaults to 25.
	MaxConns int
	// MinConns are kept open. Defaults to 5, negative means none, and never exceeds MaxConns.
	MinConns int
	// Timeout bounds connecting, unless the DSN sets connect_timeout, and each query. Defaults to 3 seconds.
	Timeout time.Duration
	// Migrate applies the embedded migrations on opening.
	Migrate bool
	// MigrateTimeout bounds all of them together, and the wait for another replica that applies them. Defaults to
	// 3 minutes.
	MigrateTimeout time.Duration
	// Log hears when the feed loses its connection and when it is back. Defaults to no log.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxConns <= 0 {
		o.MaxConns = DefaultMaxConns
	}
	if o.MinConns == 0 {
		o.MinConns = DefaultMinConns
	}
	o.MinConns = min(max(o.MinConns, 0), o.MaxConns)
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MigrateTimeout <= 0 {
		o.MigrateTimeout = DefaultMigrateTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is a store.Store in Postgres.
type Store struct {
	sqlstore.Reads
	pool    *pgxpool.Pool
	timeout time.Duration
	feed    *feed
}

// Open connects, applies the migrations if asked to, and checks that the tables are there.
func Open(ctx context.Context, options Options) (*Store, error) {
	options = options.withDefaults()
	config, err := poolConfig(options)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, translate(ctx, err)
	}
	s := &Store{
		Reads:   sqlstore.NewReads(querier{pool, options.Timeout}),
		pool:    pool,
		timeout: options.Timeout,
		feed:    newFeed(pool, options.Timeout, options.Log),
	}
	if err := s.prepare(ctx, options); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func poolConfig(options Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(options.DSN)
	if err != nil {
		// The parser's own text may repeat the password.
		return nil, errors.New("the database URL cannot be read, want postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	config.MaxConns = int32(options.MaxConns)
	config.MinConns = int32(options.MinConns)
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = options.Timeout
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "ktms"
	}
	return config, nil
}

func (s *Store) prepare(ctx context.Context, options Options) error {
	if options.Migrate {
		bound, cancel := context.WithTimeout(ctx, options.MigrateTimeout)
		defer cancel()
		return sqlstore.Migrate(bound, migrations.Postgres(), s.exclusive)
	}
	_, err := s.Config(ctx)
	if err == nil {
		_, err = s.ListNodeKeys(ctx, "", 1, true) // the one table that is not part of the configuration
	}
	if isUndefinedTable(err) {
		return fmt.Errorf("tables are missing: apply every file of migrations/postgres, or let migrations run: %w", err)
	}
	return err
}

// exclusive is a sqlstore.Exclusive. The lock ends with its transaction, so it cannot outlive a lost connection.
func (s *Store) exclusive(ctx context.Context, fn func(ctx context.Context, q sqlstore.Querier) error) error {
	// Migrations may take longer than a query; ctx bounds them.
	return s.transaction(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		q := querier{tx, unbounded}
		if _, err := q.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		return fn(ctx, q)
	})
}

// errRollback ends a transaction that has nothing to commit.
var errRollback = errors.New("rollback")

// transaction commits when fn returns nil and rolls back when it fails or panics.
func (s *Store) transaction(ctx context.Context, options pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	bound, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tx, err := s.pool.BeginTx(bound, options)
	if err != nil {
		return translate(ctx, err)
	}
	defer func() {
		// After a commit this does nothing. The caller may be gone; the connection must be freed all the same.
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		_ = tx.Rollback(bound)
	}()
	if err := fn(tx); err != nil {
		if errors.Is(err, errRollback) {
			return nil
		}
		return err
	}
	bound, cancel = context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := tx.Commit(bound); err != nil {
		return fmt.Errorf("commit: %w", translate(ctx, err))
	}
	return nil
}

// Config reads the whole configuration in one snapshot.
func (s *Store) Config(ctx context.Context) (*store.Config, error) {
	var config *store.Config
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := s.transaction(ctx, snapshot, func(tx pgx.Tx) (err error) {
		config, err = sqlstore.ReadConfig(ctx, querier{tx, s.timeout})
		return err
	})
	if err != nil {
		return nil, err
	}
	return config, nil
}

// Update runs fn in one transaction that excludes every other Update on this database.
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx store.Tx) error) (store.Change, error) {
	var change store.Change
	err := s.transaction(ctx, pgx.TxOptions{BeginQuery: beginUpdate}, func(tx pgx.Tx) error {
		q := querier{tx, s.timeout}
		if _, err := q.Exec(ctx, lockVersion); err != nil {
			return fmt.Errorf("wait for other writers: %w", err)
		}
		work, err := sqlstore.Begin(ctx, q)
		if err != nil {
			return err
		}
		if err := fn(ctx, work); err != nil {
			return err
		}
		var dirty bool
		if change, dirty, err = work.Finish(ctx); err != nil {
			return err
		}
		if !dirty {
			return errRollback
		}
		_, err = q.Exec(ctx, notify, changeChannel, encodeChange(change))
		return err
	})
	if err != nil {
		return store.Change{}, err
	}
	return change, nil
}

// Feed delivers what any replica commits.
func (s *Store) Feed() store.Feed { return s.feed }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return translate(ctx, s.pool.Ping(bound))
}

// Close ends the feed and releases every connection.
func (s *Store) Close() {
	s.feed.close()
	s.pool.Close()
}
