// Package access finds out who is calling: bearer key → caller, over every door, before a body is read.
//
// A verified key is remembered for as long as the store proves that it would have told of a change. Without that proof
// every call asks the database, and while the database is away, keys verified a short while ago keep working.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

const (
	// KeyPrefix starts every client key.
	KeyPrefix = "ktms_"
	// LegacyKeyPrefix starts keys minted before the rename; they keep working.
	LegacyKeyPrefix = "llm_"
	// NodeKeyPrefix starts every node key, so it never starts a client key.
	NodeKeyPrefix = "ktms_node_"
	// LegacyNodeKeyPrefix starts node keys minted before the rename; they keep working.
	LegacyNodeKeyPrefix = "llm_node_"

	// maxProofAge is how old the store's proof of having told everything may be. It bounds how long a revoked key is
	// still accepted by a replica whose listener went deaf.
	maxProofAge = 800 * time.Millisecond
	// outagePause is how long known keys are served without asking a database that just failed, so that a hung one
	// does not cost every call a timeout. Like maxProofAge it bounds how late a revocation is.
	outagePause = 800 * time.Millisecond
	// maxKnown bounds the memory of known keys (about 300 bytes each), maxUnknown that of refused ones, which anybody
	// can make up.
	maxKnown   = 100_000
	maxUnknown = 10_000
)

// Keys is what an Authenticator reads from the store.
type Keys interface {
	KeyByHash(ctx context.Context, hash [32]byte) (store.Key, error)
	NodeKeyByHash(ctx context.Context, hash [32]byte) (store.NodeKey, error)
}

// Options is what an Authenticator needs.
type Options struct {
	Keys Keys
	// SeenUpTo is the feed's proof: every change committed before that instant has reached Apply.
	SeenUpTo func() time.Time
	// BootstrapKey is an implicit admin key; empty for none.
	BootstrapKey string
	// StaleIfError is how long a verified key outlives an outage of the database; 0 refuses every call then.
	StaleIfError time.Duration
	// Timeout bounds one key check at the database.
	Timeout time.Duration
	Log     *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Authenticator checks keys. It is safe for concurrent use.
type Authenticator struct {
	options   Options
	bootstrap [sha256.Size]byte
	flights   singleflight.Group

	mu sync.RWMutex
	// generation counts the changes applied, so that a read that raced one is not remembered.
	generation uint64
	// doubted is the generation of the last change that may have touched any key.
	doubted uint64
	known   map[[sha256.Size]byte]entry
	unknown map[[sha256.Size]byte]struct{}
	// askAgain is when the database may be asked again after a failure.
	askAgain time.Time
}

// entry is a key that the database confirmed.
type entry struct {
	caller     *caller.Caller
	verifiedAt time.Time
	generation uint64
}

// New returns an Authenticator that knows no key yet.
func New(options Options) *Authenticator {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Authenticator{
		options:   options,
		bootstrap: sha256.Sum256([]byte(options.BootstrapKey)),
		known:     map[[sha256.Size]byte]entry{},
		unknown:   map[[sha256.Size]byte]struct{}{},
	}
}

// Apply forgets what a change touched. The writer calls it before it answers; the feed calls it for everybody else.
func (a *Authenticator) Apply(change store.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generation++
	for _, hash := range change.KeyHashes {
		delete(a.known, hash)
		delete(a.unknown, hash)
	}
	if change.All {
		// The entries stay, for an outage; until then each has to be verified again.
		a.doubted = a.generation
		clear(a.unknown)
	}
}

// Authenticate returns the caller behind a plain key. Errors: status.Unauthenticated, status.AuthUnavailable.
func (a *Authenticator) Authenticate(ctx context.Context, plain string) (*caller.Caller, error) {
	hash := sha256.Sum256([]byte(plain))
	if a.options.BootstrapKey != "" && subtle.ConstantTimeCompare(hash[:], a.bootstrap[:]) == 1 {
		return &caller.Caller{KeyName: "bootstrap", Scopes: []string{caller.ScopeAdmin}}, nil
	}
	if plain == "" {
		return nil, status.New(status.Unauthenticated, "missing API key: send it as \"Authorization: Bearer ktms_…\"")
	}
	if !strings.HasPrefix(plain, KeyPrefix) && !strings.HasPrefix(plain, LegacyKeyPrefix) {
		return nil, errInvalid()
	}

	now := a.options.Now()
	proof := a.options.SeenUpTo()
	proven := now.Sub(proof) <= maxProofAge
	a.mu.RLock()
	found, known := a.known[hash]
	_, refused := a.unknown[hash]
	fresh := known && found.generation >= a.doubted
	waiting := now.Before(a.askAgain)
	a.mu.RUnlock()

	switch {
	case proven && fresh:
		return found.caller, nil
	case proven && refused:
		return nil, errInvalid()
	}
	if fresh && proof.After(found.verifiedAt) {
		// The feed vouched for the entry until then.
		found.verifiedAt = proof
	}
	usable := known && now.Sub(found.verifiedAt) <= a.options.StaleIfError && a.options.StaleIfError > 0
	if waiting && usable {
		return found.caller, nil
	}
	c, err := a.ask(ctx, hash, IsNodeKey(plain))
	if errors.Is(err, errOutage) && usable {
		return found.caller, nil
	}
	return c, err
}

// IsNodeKey reports whether a plain key is, by its looks, a node's.
func IsNodeKey(plain string) bool {
	return strings.HasPrefix(plain, NodeKeyPrefix) || strings.HasPrefix(plain, LegacyNodeKeyPrefix)
}

// errOutage marks answers that the database did not give.
var errOutage = errors.New("key check failed")

// ask reads the key from the database, once for all calls that wait for the same key.
func (a *Authenticator) ask(ctx context.Context, hash [sha256.Size]byte, node bool) (*caller.Caller, error) {
	flight := a.flights.DoChan(string(hash[:]), func() (any, error) {
		// The read serves other callers too, so it outlives this one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.options.Timeout)
		defer cancel()
		return a.read(ctx, hash, node)
	})
	select {
	case <-ctx.Done():
		return nil, status.Wrap(ctx.Err(), status.Canceled, "the caller went away")
	case result := <-flight:
		c, _ := result.Val.(*caller.Caller)
		return c, result.Err
	}
}

func (a *Authenticator) read(ctx context.Context, hash [sha256.Size]byte, node bool) (*caller.Caller, error) {
	a.mu.RLock()
	generation := a.generation
	a.mu.RUnlock()

	c, stored, err := a.find(ctx, hash, node)
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil && !missing {
		a.options.Log.Error("key check failed", "error", err)
		a.mu.Lock()
		a.askAgain = a.options.Now().Add(outagePause)
		a.mu.Unlock()
		return nil, status.Wrap(errors.Join(errOutage, err), status.AuthUnavailable,
			"the key cannot be checked at the moment; retry with backoff")
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.askAgain = time.Time{}
	unchanged := a.generation == generation
	if missing || c == nil || subtle.ConstantTimeCompare(stored[:], hash[:]) != 1 {
		delete(a.known, hash)
		if unchanged {
			if len(a.unknown) >= maxUnknown {
				clear(a.unknown)
			}
			a.unknown[hash] = struct{}{}
		}
		return nil, errInvalid()
	}
	if unchanged {
		if len(a.known) >= maxKnown {
			clear(a.known)
		}
		a.known[hash] = entry{caller: c, verifiedAt: a.options.Now(), generation: generation}
	}
	return c, nil
}

// find returns the caller behind a hash, nil when its key is revoked, and the hash that the database has.
func (a *Authenticator) find(ctx context.Context, hash [sha256.Size]byte, node bool) (c *caller.Caller, stored [sha256.Size]byte, err error) {
	if node {
		key, err := a.options.Keys.NodeKeyByHash(ctx, hash)
		if err == nil && key.RevokedAt.IsZero() {
			c = nodeOf(key)
		}
		return c, key.Hash, err
	}
	key, err := a.options.Keys.KeyByHash(ctx, hash)
	if err == nil && key.RevokedAt.IsZero() {
		c = CallerOf(key)
	}
	return c, key.Hash, err
}

// nodeOf returns the caller behind a stored node key.
func nodeOf(key store.NodeKey) *caller.Caller {
	return &caller.Caller{
		KeyID: key.ID, KeyName: key.Name, NodeID: key.NodeID, Scopes: []string{caller.ScopeNode},
		AllowedModels: key.AllowedModels, AllowedCIDRs: key.AllowedCIDRs,
	}
}

// CallerOf returns the caller behind a stored client key.
func CallerOf(key store.Key) *caller.Caller {
	return &caller.Caller{
		KeyID: key.ID, KeyName: key.Name, Scopes: key.Scopes, OrgID: key.OrgID, TeamID: key.TeamID,
		AllowedModels: key.Policy.GetAllowedModels(), RPMLimit: key.Policy.GetRpmLimit(), TPMLimit: key.Policy.GetTpmLimit(),
	}
}

func errInvalid() error { return status.New(status.Unauthenticated, "invalid API key") }
