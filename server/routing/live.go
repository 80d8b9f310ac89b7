package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

// readTimeout bounds one read of the configuration, the first one included: longer than any healthy database needs,
// short enough that a start without one ends and is tried again by whoever supervises it.
const readTimeout = 30 * time.Second

// ErrWrongKeyring says that none of the stored vendor keys can be opened. While a keyring is being rotated some can.
var ErrWrongKeyring = errors.New("wrong keyring")

// Source is what Live reads of a store.Store.
type Source interface {
	Config(ctx context.Context) (*store.Config, error)
	ConfigVersion(ctx context.Context) (int64, error)
}

// Options are what Live works with.
type Options struct {
	Store Source
	// Open unseals a vendor key.
	Open func(store.VendorKey) (vendors.Secret, error)
	Log  *slog.Logger
	// Unreadable, if set, counts the vendor keys of a new version that could not be opened. It is not called for none.
	Unreadable func(n int)
}

// Live keeps the current Table. It is safe for concurrent use; Table costs one atomic load.
type Live struct {
	opts  Options
	table atomic.Pointer[Table]
	// wanted is the highest version that Notify heard of, and wake tells Run that there is something to do.
	wanted atomic.Int64
	wake   chan struct{}
	// gate holds a token while the configuration is read: one read at a time, for everybody who waits for it.
	gate chan struct{}
	// logged is the failure that the log has already; guarded by gate.
	logged string
}

// NewLive starts with a table that knows nothing; Load fills it.
func NewLive(opts Options) *Live {
	l := &Live{opts: opts, wake: make(chan struct{}, 1), gate: make(chan struct{}, 1)}
	l.table.Store(&Table{version: -1}) // below every stored version, so that any replaces it
	return l
}

// Table returns the current table, never nil.
func (l *Live) Table() *Table { return l.table.Load() }

// Load reads the configuration for the first time. Until it succeeds there is nothing to serve with. ErrWrongKeyring
// when there are vendor keys and none of them can be opened.
func (l *Live) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	cfg, err := l.opts.Store.Config(ctx)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	t, err := compile(cfg, l.opts.Open, nil)
	if err != nil {
		return fmt.Errorf("configuration version %d: %w", cfg.Version, err)
	}
	if t.stored > 0 && len(t.unreadable) == t.stored {
		return wrongKeyring(t.unreadable)
	}
	l.apply(t)
	return nil
}

// wrongKeyring quotes the openers' words, which name the keyring versions that would be needed. Few differ.
func wrongKeyring(keys []UnreadableKey) error {
	var causes []string
	for _, k := range keys {
		if text := k.Err.Error(); !slices.Contains(causes, text) && len(causes) < maxListed {
			causes = append(causes, text)
		}
	}
	return fmt.Errorf("%w: none of the %d stored vendor keys can be opened (%s); start with the keyring that they were "+
		"sealed with", ErrWrongKeyring, len(keys), strings.Join(causes, "; "))
}

// Reload returns once the current table is of version atLeast or later; 0 means the store's latest. It reads the
// configuration if need be, and calls that overlap share a read. A configuration that cannot be read or does not
// compile leaves the current table in place and is logged once; Run tries again.
func (l *Live) Reload(ctx context.Context, atLeast int64) error {
	err := l.reload(ctx, atLeast)
	if err != nil {
		l.Notify(store.Change{Version: atLeast})
	}
	return err
}

func (l *Live) reload(ctx context.Context, atLeast int64) error {
	if l.reached(atLeast) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	if l.reached(atLeast) {
		return nil // whoever held the gate before has read it
	}
	err := l.read(ctx, atLeast)
	if err == nil {
		l.logged = ""
	}
	return err
}

func (l *Live) reached(version int64) bool { return version > 0 && l.Table().version >= version }

// read replaces the table if the store has a newer configuration.
func (l *Live) read(ctx context.Context, atLeast int64) error {
	current := l.Table()
	if atLeast == 0 {
		version, err := l.opts.Store.ConfigVersion(ctx)
		if err != nil {
			return l.fail(current.version, "read the configuration", err)
		}
		if version <= current.version {
			return nil
		}
	}
	cfg, err := l.opts.Store.Config(ctx)
	if err != nil {
		return l.fail(current.version, "read the configuration", err)
	}
	if cfg.Version < atLeast {
		return l.fail(cfg.Version, "read the configuration", fmt.Errorf("got version %d, want %d", cfg.Version, atLeast))
	}
	if cfg.Version <= current.version {
		return nil // never back: an older snapshot proves nothing about the newer one
	}
	t, err := compile(cfg, l.opts.Open, current)
	if err != nil {
		return l.fail(cfg.Version, "compile the configuration", err)
	}
	l.apply(t)
	return nil
}

// apply makes the table current and tells of the vendor keys that it lacks. The caller holds the gate.
func (l *Live) apply(t *Table) {
	l.table.Store(t)
	for _, k := range t.unreadable {
		l.opts.Log.Error("vendor key cannot be opened", "key", k.KeyName, "vendor", k.Vendor, "error", k.Err,
			"earlier_credential_kept", k.Kept)
	}
	if n := len(t.unreadable); n > 0 && l.opts.Unreadable != nil {
		l.opts.Unreadable(n)
	}
	l.opts.Log.Info("configuration applied", "version", t.version, "models", len(t.byID), "rules", len(t.rules),
		"vendor_keys", t.stored-len(t.unreadable))
}

// fail logs what went wrong with a version the first time it does. The caller holds the gate.
func (l *Live) fail(version int64, doing string, err error) error {
	err = fmt.Errorf("%s: %w", doing, err)
	if errors.Is(err, context.Canceled) {
		return err // the caller left; the configuration has no fault in that
	}
	if this := fmt.Sprint(version, doing); l.logged != this {
		l.logged = this
		l.opts.Log.Error("configuration not reloaded, the current one stays", "current", l.Table().version,
			"version", version, "error", err)
	}
	return err
}

func (l *Live) enter(ctx context.Context) error {
	select {
	case l.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Live) leave() { <-l.gate }

// Notify has Run catch up with a change. It returns at once, however many changes come.
func (l *Live) Notify(c store.Change) {
	if l.reached(c.Version) {
		return
	}
	for seen := l.wanted.Load(); seen < c.Version && !l.wanted.CompareAndSwap(seen, c.Version); {
		seen = l.wanted.Load()
	}
	select {
	case l.wake <- struct{}{}:
	default: // Run has yet to begin the round that serves this change too
	}
}

// Run follows changes until ctx ends: those that Notify hears of at once, any other at the next poll. Without a
// positive poll it follows Notify alone.
func (l *Live) Run(ctx context.Context, poll time.Duration) {
	var tick <-chan time.Time
	if poll > 0 {
		ticker := time.NewTicker(poll)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-tick:
		}
		wanted := l.wanted.Load()
		if l.reached(wanted) {
			wanted = 0 // nothing known to be missing: ask
		}
		_ = l.reload(ctx, wanted) // logged where it failed
	}
}
