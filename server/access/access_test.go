package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// table is a Keys whose database can be taken away.
type table struct {
	mu    sync.Mutex
	keys  map[[32]byte]store.Key
	nodes map[[32]byte]store.NodeKey
	down  bool
	reads int
	// during, if set, runs within a read, before it returns.
	during func()
}

func (d *table) KeyByHash(_ context.Context, hash [32]byte) (store.Key, error) {
	return find(d, d.keys, hash)
}

func (d *table) NodeKeyByHash(_ context.Context, hash [32]byte) (store.NodeKey, error) {
	return find(d, d.nodes, hash)
}

func find[K any](d *table, keys map[[32]byte]K, hash [32]byte) (none K, err error) {
	d.mu.Lock()
	d.reads++
	key, found := keys[hash]
	down, during := d.down, d.during
	d.mu.Unlock()
	if during != nil {
		during()
	}
	switch {
	case down:
		return none, store.ErrUnavailable
	case !found:
		return none, store.ErrNotFound
	}
	return key, nil
}

func (d *table) putNode(plain string, change func(*store.NodeKey)) [32]byte {
	hash := sha256.Sum256([]byte(plain))
	d.mu.Lock()
	defer d.mu.Unlock()
	key, found := d.nodes[hash]
	if !found {
		key = store.NodeKey{ID: plain, Name: plain, NodeID: "mac", Hash: hash}
	}
	if change != nil {
		change(&key)
	}
	d.nodes[hash] = key
	return hash
}

func (d *table) put(plain string, change func(*store.Key)) [32]byte {
	hash := sha256.Sum256([]byte(plain))
	d.mu.Lock()
	defer d.mu.Unlock()
	key, found := d.keys[hash]
	if !found {
		key = store.Key{ID: plain, Name: plain, Hash: hash, Scopes: []string{caller.ScopeGenerate}}
	}
	if change != nil {
		change(&key)
	}
	d.keys[hash] = key
	return hash
}

func (d *table) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

func (d *table) set(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = down
}

// world is an Authenticator with hands on its clock, its feed and its database.
type world struct {
	*Authenticator
	db   *table
	now  time.Time
	seen time.Time
}

func newWorld(t *testing.T, stale time.Duration) *world {
	t.Helper()
	w := &world{db: &table{keys: map[[32]byte]store.Key{}, nodes: map[[32]byte]store.NodeKey{}}, now: time.Unix(1_800_000_000, 0)}
	w.seen = w.now
	w.Authenticator = New(Options{
		Keys: w.db, SeenUpTo: func() time.Time { return w.seen }, BootstrapKey: "boot", StaleIfError: stale,
		Timeout: time.Second, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
	})
	return w
}

// pass moves the clock; the feed's proof keeps up only when it is alive.
func (w *world) pass(d time.Duration, feedAlive bool) {
	w.now = w.now.Add(d)
	if feedAlive {
		w.seen = w.now
	}
}

func (w *world) expect(t *testing.T, plain string, want status.Reason) {
	t.Helper()
	_, err := w.Authenticate(t.Context(), plain)
	got := status.Reason("")
	if err != nil {
		got = status.As(err).Reason
	}
	if got != want {
		t.Fatalf("Authenticate(%q): got %q, want %q (%v)", plain, got, want, err)
	}
}

const ok = status.Reason("")

func TestAuthenticate_Kinds(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.db.put("ktms_good", nil)
	w.db.put("llm_legacy", nil)
	w.db.put("ktms_revoked", func(k *store.Key) { k.RevokedAt = w.now })
	for _, test := range []struct {
		plain string
		want  status.Reason
	}{
		{"ktms_good", ok}, {"llm_legacy", ok}, {"boot", ok},
		{"", status.Unauthenticated}, {"ktms_unknown", status.Unauthenticated}, {"ktms_revoked", status.Unauthenticated},
		{"sk-something", status.Unauthenticated}, {"ktms_good ", status.Unauthenticated},
	} {
		w.expect(t, test.plain, test.want)
	}
}

func TestAuthenticate_ReadsOnceWhileTheFeedIsProven(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.db.put("ktms_a", nil)
	for range 5 {
		w.expect(t, "ktms_a", ok)
		w.expect(t, "ktms_unknown", status.Unauthenticated)
		w.pass(10*time.Minute, true)
	}
	if got := w.db.count(); got != 2 {
		t.Errorf("reads: got %d, want one for each key", got)
	}
}

func TestAuthenticate_AsksEveryTimeWithoutProof(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.db.put("ktms_a", nil)
	w.expect(t, "ktms_a", ok)
	w.pass(maxProofAge+time.Millisecond, false) // the listener went deaf
	w.db.put("ktms_a", func(k *store.Key) { k.RevokedAt = w.now })
	w.expect(t, "ktms_a", status.Unauthenticated)
}

func TestAuthenticate_ProofAgeStaysBelowASecond(t *testing.T) {
	if maxProofAge >= time.Second || outagePause >= time.Second {
		t.Errorf("a revocation would take a second or more: proof %v, outage %v", maxProofAge, outagePause)
	}
}

func TestApply_RevokedAndMinted(t *testing.T) {
	w := newWorld(t, time.Minute)
	hash := w.db.put("ktms_a", nil)
	w.expect(t, "ktms_a", ok)
	w.db.put("ktms_a", func(k *store.Key) { k.RevokedAt = w.now })
	w.Apply(store.Change{KeyHashes: [][32]byte{hash}})
	w.expect(t, "ktms_a", status.Unauthenticated)

	w.expect(t, "ktms_new", status.Unauthenticated) // remembered as unknown
	hash = w.db.put("ktms_new", nil)
	w.Apply(store.Change{KeyHashes: [][32]byte{hash}})
	w.expect(t, "ktms_new", ok)
}

func TestApply_AllMeansVerifyAgain(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.db.put("ktms_a", nil)
	w.expect(t, "ktms_a", ok)
	w.Apply(store.Change{All: true})
	w.db.put("ktms_a", func(k *store.Key) { k.RevokedAt = w.now })
	w.expect(t, "ktms_a", status.Unauthenticated)
}

func TestApply_DuringAReadIsNotLost(t *testing.T) {
	w := newWorld(t, time.Minute)
	hash := w.db.put("ktms_a", nil)
	w.db.during = func() {
		w.db.put("ktms_a", func(k *store.Key) { k.RevokedAt = w.now })
		w.Apply(store.Change{KeyHashes: [][32]byte{hash}})
	}
	w.expect(t, "ktms_a", ok) // it was read before the revocation
	w.db.during = nil
	w.expect(t, "ktms_a", status.Unauthenticated)
}

func TestOutage_KnownKeysOutliveItForTheWindow(t *testing.T) {
	w := newWorld(t, 5*time.Minute)
	w.db.put("ktms_a", nil)
	w.db.put("ktms_b", nil)
	w.expect(t, "ktms_a", ok)
	w.pass(time.Hour, true) // the feed vouches for it all along
	w.db.set(true)
	w.pass(4*time.Minute, false)
	w.expect(t, "ktms_a", ok)
	w.expect(t, "ktms_b", status.AuthUnavailable)
	w.pass(2*time.Minute, false)
	w.expect(t, "ktms_a", status.AuthUnavailable)
	w.db.set(false)
	w.expect(t, "ktms_a", ok)
}

func TestOutage_ZeroWindowRefusesEveryCall(t *testing.T) {
	w := newWorld(t, 0)
	w.db.put("ktms_a", nil)
	w.expect(t, "ktms_a", ok)
	w.db.set(true)
	w.pass(2*time.Second, false)
	w.expect(t, "ktms_a", status.AuthUnavailable)
}

func TestOutage_DoesNotCostEveryCallATimeout(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.db.put("ktms_a", nil)
	w.expect(t, "ktms_a", ok)
	w.db.set(true)
	w.pass(2*time.Second, false)
	before := w.db.count()
	for range 10 {
		w.expect(t, "ktms_a", ok)
	}
	if got := w.db.count() - before; got != 1 {
		t.Errorf("reads during the outage: got %d, want 1", got)
	}
}

func TestOutage_ARevokedKeyDoesNotComeBack(t *testing.T) {
	w := newWorld(t, time.Minute)
	hash := w.db.put("ktms_a", nil)
	w.expect(t, "ktms_a", ok)
	w.Apply(store.Change{KeyHashes: [][32]byte{hash}}) // revoked
	w.db.set(true)
	w.expect(t, "ktms_a", status.AuthUnavailable)
}

func TestAuthenticate_TheCallerMayLeaveWhileTheDatabaseThinks(t *testing.T) {
	w := newWorld(t, time.Minute)
	release := make(chan struct{})
	w.db.during = func() { <-release }
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Authenticate(ctx, "ktms_a")
	if got := status.As(err).Reason; got != status.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v (%v), want canceled", got, err)
	}
}

func TestUnknownKeysTakeBoundedMemory(t *testing.T) {
	w := newWorld(t, time.Minute)
	for i := range maxUnknown + 10 {
		_, _ = w.Authenticate(t.Context(), KeyPrefix+time.Duration(i).String())
	}
	if got := len(w.unknown); got > maxUnknown {
		t.Errorf("remembered %d refused keys, want at most %d", got, maxUnknown)
	}
}
