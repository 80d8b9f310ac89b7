package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store"
)

var feedTests = []test{
	{"starts with everything", testFeedStart},
	{"delivers what is committed", testFeedDelivers},
	{"delivers what others commit within a second", testFeedOthers},
	{"delivers nothing else", testFeedCommitsOnly},
	{"delivers many keys", testFeedManyKeys},
	{"has delivered what it has seen", testFeedProof},
	{"has not seen what is being delivered", testFeedSlow},
	{"ends and starts again", testFeedRestart},
	{"ends with the store", testFeedClosed},
}

func testFeedStart(t *testing.T, opener Opener) {
	s := opener.open(t)
	if seen := s.Feed().SeenUpTo(); !seen.IsZero() {
		t.Errorf("before it runs it has seen all up to %s", seen)
	}
	started := time.Now()
	heard := Hear(t, s)
	if first := heard.Changes()[0]; !first.All {
		t.Errorf("the first change is %+v, want all", first)
	}
	wantSeen(t, s, started)
}

func testFeedDelivers(t *testing.T, opener Opener) {
	s := opener.open(t)
	heard := Hear(t, s)
	key := newKey("key")
	first := insertKeys(t, s, key)
	second := putModels(t, s, &ktmsv1.ModelSpec{Id: "a"})
	wantDelivered(t, heard, second.Version)
	changes := heard.Since(1)
	if len(changes) != 2 || changes[0].Version != first.Version || changes[1].Version != second.Version {
		t.Fatalf("heard %+v, want versions %d and %d", changes, first.Version, second.Version)
	}
	wantHashes(t, changes[0], key.Hash)
	wantHashes(t, changes[1])
}

func testFeedOthers(t *testing.T, opener Opener) {
	if !opener.Shared {
		return // one process alone writes
	}
	open := opener.Fresh(t)
	here, there := open(), open()
	heard, own := Hear(t, there), Hear(t, here)
	for i := range 5 {
		key := newKey(fmt.Sprint("key", i))
		change := insertKeys(t, here, key)
		Eventually(t, time.Second, "the other store hears", func() bool { return heard.Version(change.Version) })
		wantDelivered(t, own, change.Version)
		wantHashes(t, heard.Changes()[1+i], key.Hash)
	}
}

// testFeedCommitsOnly commits last, so that whatever was wrongly told before it would have been heard before it.
func testFeedCommitsOnly(t *testing.T, opener Opener) {
	s := opener.open(t)
	heard := Hear(t, s)
	_, err := s.Update(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.InsertKey(ctx, newKey("key")), errors.New("on purpose"))
	})
	if err == nil {
		t.Error("the failure was swallowed")
	}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return nil })
	kept := insertKeys(t, s, newKey("key"))
	wantDelivered(t, heard, kept.Version)
	if changes := heard.Since(1); len(changes) != 1 {
		t.Errorf("heard %+v, want the last alone", changes)
	}
}

func testFeedManyKeys(t *testing.T, opener Opener) {
	s := opener.open(t)
	heard := Hear(t, s)
	keys := make([]store.Key, 300)
	for i := range keys {
		keys[i] = newKey(fmt.Sprint("key", i))
	}
	change := insertKeys(t, s, keys...)
	wantDelivered(t, heard, change.Version)
	got := heard.Since(1)[0]
	if got.All == (got.KeyHashes != nil) || !got.All && len(got.KeyHashes) != len(keys) {
		t.Errorf("heard all %t and %d keys of %d", got.All, len(got.KeyHashes), len(keys))
	}
}

// testFeedProof is what makes a cache of the feed's consumer safe: once SeenUpTo has passed a commit, its change has
// been delivered.
func testFeedProof(t *testing.T, opener Opener) {
	open := opener.Fresh(t)
	hearing, writing := open(), open()
	if !opener.Shared {
		writing = hearing
	}
	heard := Hear(t, hearing)
	for i := range 10 {
		change := insertKeys(t, writing, newKey(fmt.Sprint("key", i)))
		committed := time.Now()
		wantSeen(t, hearing, committed)
		if !heard.Version(change.Version) {
			t.Fatalf("version %d, committed before the proof, was not delivered", change.Version)
		}
	}
}

func testFeedSlow(t *testing.T, opener Opener) {
	s := opener.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	delivering, release, ended := make(chan store.Change), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.Feed().Run(ctx, func(change store.Change) {
			delivering <- change
			<-release
		})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	<-delivering
	release <- struct{}{}
	wantSeen(t, s, time.Now())

	insertKeys(t, s, newKey("key"))
	<-delivering
	committed := time.Now()
	// Long enough for proofs to be sent and heard.
	observe(t, 700*time.Millisecond, "the change counts as seen while it is being delivered", func() bool {
		return s.Feed().SeenUpTo().After(committed)
	})
	release <- struct{}{}
	wantSeen(t, s, committed)
}

func testFeedRestart(t *testing.T, opener Opener) {
	s := opener.open(t)
	first := Hear(t, s)
	first.stop()
	missed := insertKeys(t, s, newKey("missed"))
	second := Hear(t, s)
	if change := second.Changes()[0]; !change.All {
		t.Errorf("the first change after a pause is %+v, want all", change)
	}
	next := insertKeys(t, s, newKey("next"))
	wantDelivered(t, second, next.Version)
	if first.Version(missed.Version) || first.Version(next.Version) {
		t.Error("it delivered after its end")
	}
	wantSeen(t, s, time.Now())
}

func testFeedClosed(t *testing.T, opener Opener) {
	s := opener.open(t)
	ended := make(chan struct{})
	started := make(chan struct{}, 1)
	go func() {
		defer close(ended)
		s.Feed().Run(context.Background(), func(store.Change) { started <- struct{}{} })
	}()
	<-started
	s.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it still runs")
	}
}

func wantDelivered(t testing.TB, heard *Heard, version int64) {
	t.Helper()
	Eventually(t, patience, fmt.Sprintf("version %d is delivered", version), func() bool { return heard.Version(version) })
}

func wantSeen(t testing.TB, s store.Store, instant time.Time) {
	t.Helper()
	Eventually(t, patience, "all up to an instant is seen", func() bool { return !s.Feed().SeenUpTo().Before(instant) })
}

// observe fails the test when the condition holds at any time within the span.
func observe(t testing.TB, span time.Duration, what string, condition func() bool) {
	t.Helper()
	end := time.After(span)
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for {
		if condition() {
			t.Fatal(what)
		}
		select {
		case <-ticks.C:
		case <-end:
			return
		}
	}
}
