package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/ai-process/ktms/store"
)

// maxQueue bounds the changes that wait for a slow delivery; more are told as one change of everything.
const maxQueue = 1000

// feed delivers what this process commits. There are no other writers to hear of, so all is proven but what is being
// committed or waits to be delivered.
type feed struct {
	mu      sync.Mutex
	running bool
	// committing is when the commit in progress began, zero when there is none: it may be visible to readers already.
	committing time.Time
	queue      []pending
	// delivered is the last proof, for when Run has ended.
	delivered time.Time

	wake   chan struct{}
	turn   chan struct{} // holds a token while Run runs
	closed context.Context
	end    context.CancelFunc
}

// pending is a change that was not processed yet. Its commit began at since.
type pending struct {
	change store.Change
	since  time.Time
}

func newFeed() *feed {
	f := &feed{wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	f.closed, f.end = context.WithCancel(context.Background())
	return f
}

// close ends Run and waits for it.
func (f *feed) close() {
	f.end()
	f.turn <- struct{}{}
	<-f.turn
}

// commit runs a commit and, when it succeeded, queues its change. Commits come one at a time.
func (f *feed) commit(change store.Change, commit func() error) error {
	began := time.Now()
	f.mu.Lock()
	f.committing = began
	f.mu.Unlock()

	err := commit()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.committing = time.Time{}
	if err != nil || !f.running {
		return err
	}
	if len(f.queue) >= maxQueue {
		// The oldest may be in delivery and stays.
		f.queue[1] = pending{store.Change{Version: change.Version, All: true}, f.queue[1].since}
		f.queue = f.queue[:2]
	} else {
		f.queue = append(f.queue, pending{change, began})
	}
	select {
	case f.wake <- struct{}{}:
	default: // it is awake
	}
	return nil
}

// SeenUpTo is now, or when the oldest change began that was not processed yet.
func (f *feed) SeenUpTo() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seenUpTo()
}

func (f *feed) seenUpTo() time.Time {
	switch {
	case !f.running:
		return f.delivered
	case len(f.queue) > 0:
		return f.queue[0].since
	case !f.committing.IsZero():
		return f.committing
	}
	return time.Now()
}

// Run delivers until ctx ends or the store is closed.
func (f *feed) Run(ctx context.Context, deliver func(store.Change)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.closed, cancel)()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return
	}

	f.start()
	defer f.stop()
	for ctx.Err() == nil {
		next, found := f.first()
		if found {
			deliver(next)
			f.drop()
			continue
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
	}
}

// start queues a change of everything: what happened before was not delivered. Nothing is proven until it is.
func (f *feed) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = true
	f.queue = []pending{{store.Change{All: true}, f.delivered}}
}

func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delivered = f.seenUpTo()
	f.running = false
	f.queue = nil
}

func (f *feed) first() (store.Change, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return store.Change{}, false
	}
	return f.queue[0].change, true
}

func (f *feed) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = f.queue[1:]
}
