// Package storetest is the suite that every implementation of store.Store runs, and the real Postgres that tests use.
package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/store"
)

// patience is how long a test waits for what should happen at once, on a machine that is busy with other tests.
const patience = 10 * time.Second

// Opener makes databases for the suite.
type Opener struct {
	// Fresh makes an empty database. What it returns opens that database, each call anew, and closes it when the test
	// ends.
	Fresh func(t *testing.T) (open func() store.Store)
	// Shared says that a feed hears what other stores on the same database commit.
	Shared bool
}

func (o Opener) open(t *testing.T) store.Store { return o.Fresh(t)() }

// Run runs the suite.
func Run(t *testing.T, opener Opener) {
	for _, subject := range []struct {
		name  string
		tests []test
	}{
		{"keys", keyTests},
		{"node keys", nodeKeyTests},
		{"vendor keys", vendorKeyTests},
		{"models", modelTests},
		{"rules", ruleTests},
		{"tenants", tenantTests},
		{"limits", limitTests},
		{"update", updateTests},
		{"feed", feedTests},
	} {
		t.Run(subject.name, func(t *testing.T) {
			for _, test := range subject.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(t, opener)
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, opener Opener)
}

// Eventually waits until the condition holds and fails the test after the deadline.
func Eventually(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(within)
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for !condition() {
		select {
		case <-ticks.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// Heard is what a feed delivered so far.
type Heard struct {
	mu      sync.Mutex
	changes []store.Change
	stop    func()
}

// Hear runs a store's feed until the test ends, and returns once it delivers.
func Hear(t testing.TB, s store.Store) *Heard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	heard := new(Heard)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Feed().Run(ctx, func(change store.Change) {
			heard.mu.Lock()
			defer heard.mu.Unlock()
			heard.changes = append(heard.changes, change)
		})
	}()
	heard.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(heard.stop)
	Eventually(t, patience, "the feed starts", func() bool { return len(heard.Changes()) > 0 })
	return heard
}

// Changes are those delivered so far, in order.
func (h *Heard) Changes() []store.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]store.Change(nil), h.changes...)
}

// Since are those delivered after the first n.
func (h *Heard) Since(n int) []store.Change { return h.Changes()[n:] }

// Version reports whether a change of this version was delivered.
func (h *Heard) Version(version int64) bool {
	for _, change := range h.Changes() {
		if change.Version == version {
			return true
		}
	}
	return false
}
