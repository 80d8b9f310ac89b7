// Package sqlite keeps the store in one file, for one process: the default that needs no server.
//
// Several processes may open the file without harm to it, but a feed delivers only what its own process commits.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/ai-process/ktms/migrations"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/sqlstore"
)

var _ store.Store = (*Store)(nil)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 3 * time.Second

// readers bounds the connections that read. They never wait for the writer, and a read takes microseconds.
const readers = 8

// Options say where the file is. Zero values take the defaults.
type Options struct {
	// Path of the database file. It is made for its owner alone, and so is its folder.
	Path string
	// Timeout bounds each query, and the wait for other writers. Defaults to 3 seconds.
	Timeout time.Duration
}

// Store is a store.Store in an SQLite file.
type Store struct {
	sqlstore.Reads
	reader *sql.DB
	// writer has one connection: writers queue here, in order, instead of polling for the file's lock.
	writer  *sql.DB
	timeout time.Duration
	feed    *feed
}

// Open opens the file, making it if need be, and applies the migrations.
func Open(ctx context.Context, options Options) (*Store, error) {
	if options.Path == "" {
		return nil, errors.New("the path of the database file is empty")
	}
	if options.Timeout <= 0 {
		options.Timeout = DefaultTimeout
	}
	if err := create(options.Path); err != nil {
		return nil, err
	}
	// The writer comes first: it turns on the write-ahead log, which readers may not.
	writer, err := open(options, "_txlock", "immediate")
	if err != nil {
		return nil, err
	}
	writer.SetMaxOpenConns(1)
	reader, err := open(options, "_pragma", "query_only(1)")
	if err != nil {
		writer.Close()
		return nil, err
	}
	reader.SetMaxOpenConns(readers)
	reader.SetMaxIdleConns(readers)
	s := &Store{
		Reads:   sqlstore.NewReads(querier{reader, options.Timeout}),
		reader:  reader,
		writer:  writer,
		timeout: options.Timeout,
		feed:    newFeed(),
	}
	if err := sqlstore.Migrate(ctx, migrations.SQLite(), s.exclusive); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// create makes the file and its folder private. SQLite gives its side files the mode of the file. A file that exists is
// left alone: closing it here would drop the locks that this process already holds on it.
func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

func open(options Options, name, value string) (*sql.DB, error) {
	parameters := url.Values{
		"_pragma": {
			"busy_timeout(" + strconv.FormatInt(options.Timeout.Milliseconds(), 10) + ")",
			"journal_mode(WAL)",
			"foreign_keys(1)",
			// A revocation that was confirmed must survive a power cut; writes are rare.
			"synchronous(FULL)",
		},
		"_time_format": {"sqlite"},
	}
	parameters.Add(name, value)
	// Opaque keeps a relative path relative; escaping keeps a question mark in it from ending it.
	address := url.URL{Scheme: "file", Opaque: (&url.URL{Path: options.Path}).EscapedPath(), RawQuery: parameters.Encode()}
	return sql.Open("sqlite", address.String())
}

// exclusive is a sqlstore.Exclusive: an immediate transaction holds the file's write lock from its start.
func (s *Store) exclusive(ctx context.Context, fn func(ctx context.Context, q sqlstore.Querier) error) error {
	return s.write(ctx, func(tx *sql.Tx) error { return fn(ctx, querier{tx, s.timeout}) }, (*sql.Tx).Commit)
}

// errRollback ends a transaction that has nothing to commit.
var errRollback = errors.New("rollback")

// write runs fn in an immediate transaction and ends it with commit, or rolls back when fn fails or panics.
func (s *Store) write(ctx context.Context, fn func(tx *sql.Tx) error, commit func(tx *sql.Tx) error) error {
	// The wait for the one connection has the store's deadline; the transaction, whose context ends it, has not.
	bound, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := s.writer.Conn(bound)
	if err != nil {
		return fmt.Errorf("wait for other writers: %w", translate(ctx, err))
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return translate(ctx, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit this does nothing
	if err := fn(tx); err != nil {
		if errors.Is(err, errRollback) {
			return nil
		}
		return err
	}
	if err := commit(tx); err != nil {
		return fmt.Errorf("commit: %w", translate(ctx, err))
	}
	return nil
}

// Config reads the whole configuration in one snapshot.
func (s *Store) Config(ctx context.Context) (*store.Config, error) {
	// Readers see the file as it was at their first query, whatever is written meanwhile.
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, translate(ctx, err)
	}
	defer func() { _ = tx.Rollback() }()
	return sqlstore.ReadConfig(ctx, querier{tx, s.timeout})
}

// Update runs fn in one transaction that excludes every other Update on this file.
func (s *Store) Update(ctx context.Context, fn func(ctx context.Context, tx store.Tx) error) (store.Change, error) {
	var change store.Change
	err := s.write(ctx, func(tx *sql.Tx) error {
		work, err := sqlstore.Begin(ctx, querier{tx, s.timeout})
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
		return nil
	}, func(tx *sql.Tx) error {
		return s.feed.commit(change, tx.Commit)
	})
	if err != nil {
		return store.Change{}, err
	}
	return change, nil
}

// Feed delivers what this process commits.
func (s *Store) Feed() store.Feed { return s.feed }

// Ping reports whether the file can be read.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.ConfigVersion(ctx)
	return err
}

// Close ends the feed and closes the file.
func (s *Store) Close() {
	s.feed.close()
	s.reader.Close()
	s.writer.Close()
}
