package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/storetest"
)

// trust is for how long after SeenUpTo its users rely on what they know.
const trust = time.Second

// patience is for what takes a few seconds by design: noticing silence, backing off.
const patience = 20 * time.Second

func putOrganization(ctx context.Context, tx store.Tx) error {
	return tx.InsertOrganization(ctx, store.Organization{ID: time.Now().String(), Name: time.Now().String()})
}

// commit changes something and returns when that was committed at the latest.
func commit(t *testing.T, s *Store) (change store.Change, committed time.Time) {
	t.Helper()
	change, err := s.Update(t.Context(), putOrganization)
	if err != nil {
		t.Fatal(err)
	}
	return change, time.Now()
}

func wantSeen(t *testing.T, s *Store, instant time.Time) {
	t.Helper()
	storetest.Eventually(t, patience, "the feed proves that it hears", func() bool {
		return !s.Feed().SeenUpTo().Before(instant)
	})
}

func wantStale(t *testing.T, s *Store) {
	t.Helper()
	storetest.Eventually(t, patience, "what the feed delivered is no longer trusted", func() bool {
		return time.Since(s.Feed().SeenUpTo()) > trust
	})
}

// wantToldAfterwards: once the feed claims to have seen a commit, it must have told of it, by its version or by saying
// that anything may have changed.
func wantToldAfterwards(t *testing.T, s *Store, heard *storetest.Heard, before int, change store.Change, committed time.Time) {
	t.Helper()
	wantSeen(t, s, committed)
	for _, told := range heard.Since(before) {
		if told.All || told.Version == change.Version {
			return
		}
	}
	t.Errorf("the feed has seen version %d but told only of %+v", change.Version, heard.Since(before))
}

// wantAll waits for a change of everything after the first ones.
func wantAll(t *testing.T, heard *storetest.Heard, before int) {
	t.Helper()
	storetest.Eventually(t, patience, "everything counts as changed", func() bool {
		for _, told := range heard.Since(before) {
			if told.All {
				return true
			}
		}
		return false
	})
}

// kill ends the connections of feeds at the server.
func kill(t *testing.T, through *Store) {
	t.Helper()
	var killed int
	err := through.pool.QueryRow(t.Context(), `
		SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'ktms feed'`).Scan(&killed)
	if err != nil || killed != 1 {
		t.Fatalf("killed %d connections, %v; want the feed's", killed, err)
	}
}

func TestFeedAfterItsConnectionWasKilled(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	other := mustOpen(t, dsn)
	gate, through := throughProxy(t, dsn)
	s := mustOpen(t, through)
	heard := storetest.Hear(t, s)
	wantSeen(t, s, time.Now())

	// For as long as it cannot come back, nothing is proven.
	before := len(heard.Changes())
	gate.refuse(true)
	kill(t, other)
	wantStale(t, s)
	change, committed := commit(t, other)
	if seen := s.Feed().SeenUpTo(); !seen.Before(committed) {
		t.Errorf("without a connection it has seen all up to %s after the commit", seen.Sub(committed))
	}
	if told := heard.Since(before); len(told) > 0 {
		t.Errorf("without a connection it told of %+v", told)
	}

	gate.refuse(false)
	wantAll(t, heard, before)
	wantToldAfterwards(t, s, heard, before, change, committed)

	before = len(heard.Changes())
	change, committed = commit(t, other)
	wantToldAfterwards(t, s, heard, before, change, committed)
}

// TestFeedThatIsDeaf: its connection looks alive and delivers nothing, while the pool works.
func TestFeedThatIsDeaf(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	other := mustOpen(t, dsn)
	gate, through := throughProxy(t, dsn)
	s := mustOpen(t, through)
	heard := storetest.Hear(t, s)
	wantSeen(t, s, time.Now())

	before := len(heard.Changes())
	if deafened := gate.deafen(); deafened != 1 {
		t.Fatalf("%d connections listen, want 1", deafened)
	}
	change, committed := commit(t, other)
	wantStale(t, s)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("the pool works meanwhile: %v", err)
	}
	if seen := s.Feed().SeenUpTo(); !seen.Before(committed) {
		t.Errorf("deaf, it has seen all up to %s after the commit", seen.Sub(committed))
	}
	// It finds out by itself and listens anew.
	wantAll(t, heard, before)
	wantToldAfterwards(t, s, heard, before, change, committed)
}

// TestServerThatHangs: nothing answers any more, nothing is refused either.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	other := mustOpen(t, dsn)
	gate, through := throughProxy(t, dsn)
	s := open(t, Options{DSN: through, MinConns: 1, Timeout: 500 * time.Millisecond, Migrate: true})
	heard := storetest.Hear(t, s)
	wantSeen(t, s, time.Now())

	before := len(heard.Changes())
	gate.hang()
	started := time.Now()
	_, err := s.KeyByHash(t.Context(), [32]byte{})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a read: got %v, want unavailable", err)
	}
	_, err = s.Update(t.Context(), putOrganization)
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write: got %v, want unavailable", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a ping: got %v, want unavailable", err)
	}
	if waited := time.Since(started); waited > 10*time.Second {
		t.Errorf("three calls with a timeout of half a second took %s", waited)
	}
	change, committed := commit(t, other)
	wantStale(t, s)

	gate.resume()
	wantToldAfterwards(t, s, heard, before, change, committed)
	if _, err := s.Config(t.Context()); err != nil {
		t.Errorf("after the server came back: %v", err)
	}

	gate.hang()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("closing waits for a server that hangs")
	}
}

// TestFeedIsNotStarved: the feed needs no connection of a pool that is in use but for its proofs.
func TestFeedIsNotStarved(t *testing.T) {
	t.Parallel()
	dsn := storetest.Postgres(t)
	other := mustOpen(t, dsn)
	s := open(t, Options{DSN: dsn, MaxConns: 1, Migrate: true})
	heard := storetest.Hear(t, s)
	wantSeen(t, s, time.Now())

	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	change, committed := commit(t, other)
	storetest.Eventually(t, patience, "the change is heard", func() bool { return heard.Version(change.Version) })
	wantStale(t, s)
	if changes := heard.Changes(); len(changes) != 2 {
		t.Errorf("a busy pool made the feed listen anew: %+v", changes)
	}
	conn.Release()
	wantSeen(t, s, committed)
}

func TestProofs(t *testing.T) {
	sent := newProofs()
	start := time.Now()
	first, _ := sent.send(start)
	second, _ := sent.send(start.Add(1))
	third, _ := sent.send(start.Add(2))
	sent.withdraw(third)
	if _, known := sent.receive(third); known {
		t.Error("a proof that was withdrawn is known")
	}
	if at, known := sent.receive(second); !known || !at.Equal(start.Add(1)) {
		t.Errorf("the second was sent at %s (%t)", at, known)
	}
	if _, known := sent.receive(first); known {
		t.Error("a proof is known after a later one")
	}
	if age := sent.oldest(); age != 0 {
		t.Errorf("none is on its way, but the oldest is %s old", age)
	}

	// Those of an earlier connection prove nothing.
	late, _ := sent.send(start)
	if _, known := newProofs().receive(late); known {
		t.Error("a proof of another connection is known")
	}

	for range maxProofs - 1 {
		sent.send(start)
	}
	if _, open := sent.send(start); open {
		t.Error("their number is not bounded")
	}
	if sent.oldest() == 0 {
		t.Error("none is on its way")
	}
}
