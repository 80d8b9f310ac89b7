package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ai-process/ktms/store"
)

// TestFeedBoundsItsQueue commits far more than a delivery takes.
func TestFeedBoundsItsQueue(t *testing.T) {
	f := newFeed()
	ctx, cancel := context.WithCancel(t.Context())
	delivering, release, ended := make(chan store.Change), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func(change store.Change) {
			delivering <- change
			<-release
		})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	next := func() store.Change {
		change := <-delivering
		release <- struct{}{}
		return change
	}
	<-delivering // the first one stays in delivery

	const commits = maxQueue + 1
	began := time.Now()
	for i := range commits {
		if err := f.commit(store.Change{Version: int64(i + 1)}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(f.queue); got > maxQueue {
		t.Errorf("%d changes wait, want at most %d", got, maxQueue)
	}
	release <- struct{}{}
	merged := <-delivering
	if !merged.All || merged.Version < maxQueue {
		t.Errorf("the next is %+v, want all, at a late version", merged)
	}
	if seen := f.SeenUpTo(); seen.Before(began) || time.Since(seen) <= 0 {
		t.Errorf("while the merged change is being delivered it has seen all up to %s after the start", seen.Sub(began))
	}
	release <- struct{}{}
	for last := merged.Version; last < commits; {
		last = next().Version
	}
}

// TestFeedHasNotSeenACommitInProgress: readers may see it already, and others hear of it later.
func TestFeedHasNotSeenACommitInProgress(t *testing.T) {
	f := newFeed()
	f.start()
	f.drop() // the change of everything is delivered
	var during time.Time
	failed := errors.New("on purpose")
	err := f.commit(store.Change{Version: 1}, func() error {
		during = time.Now()
		if f.SeenUpTo().After(during) {
			t.Error("the commit in progress counts as seen")
		}
		return failed
	})
	if err != failed {
		t.Errorf("got %v, want the error of the commit", err)
	}
	if _, found := f.first(); found {
		t.Error("a failed commit is delivered")
	}
	if f.SeenUpTo().Before(during) {
		t.Error("a failed commit stops the feed")
	}
}

// TestFeedThatNobodyRunsKeepsNothing: its queue would grow for ever.
func TestFeedThatNobodyRunsKeepsNothing(t *testing.T) {
	f := newFeed()
	for range 3 {
		if err := f.commit(store.Change{Version: 1}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.queue) != 0 || !f.SeenUpTo().IsZero() {
		t.Errorf("it keeps %d changes and has seen all up to %s", len(f.queue), f.SeenUpTo())
	}
}
