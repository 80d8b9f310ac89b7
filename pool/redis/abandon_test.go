package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// TestNobodyKeepsASlotThatNobodyWasTold has a server that hangs while a slot is asked for, and one whose caller leaves. The
// question is carried out when the server goes on. The pool's clock stands, so that no lease ends by itself.
func TestNobodyKeepsASlotThatNobodyWasTold(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	fleet, err := f.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	candidates, _ := selection.Prepare([]selection.Node{fleet.Nodes[0].Selection(fleet.Now, ttl)}, selection.Query{Model: "m"})
	choose := func(ctx context.Context, id pool.ID) error {
		_, err := f.Choose(ctx, pool.Choosing{ID: id, TTL: time.Hour, Model: "m", Prompt: 10,
			Contenders: []pool.Contender{{Candidate: candidates[0], Generation: fleet.Nodes[0].Generation}}})
		return err
	}
	if err := choose(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}

	f.server.Pause(t)
	if err := choose(t.Context(), "hangs"); !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("%v, want that Redis is unavailable", err)
	}
	leaving, leave := context.WithTimeout(t.Context(), time.Millisecond)
	defer leave()
	if err := choose(leaving, "left"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's own", err)
	}
	f.server.Resume(t)
	eventually(t, "the one slot that somebody was told of is taken", func() bool {
		loads, err := f.Loads(t.Context(), "m", []string{"n"})
		f.doubts.mu.Lock()
		settled := !f.doubts.running
		f.doubts.mu.Unlock()
		return err == nil && settled && loads[0].InFlight == 1 && loads[0].Queued == 10
	})
}

// TestAQuestionOutlivesItsLease has a server that hangs for longer than the lease would have lived that it is asked for. It
// begins when the server goes on.
func TestAQuestionOutlivesItsLease(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	choosing := oneSlot("n")
	choosing.Model = "other"
	if chosen, err := f.Choose(t.Context(), choosing); err != nil || chosen.Lease == nil { // which makes the script known
		t.Fatal(chosen, err)
	}
	f.server.Pause(t)
	choosing = oneSlot("n")
	choosing.TTL = time.Millisecond
	if _, err := f.Choose(t.Context(), choosing); !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("%v, want that Redis is unavailable", err)
	}
	tried := time.Now().Add(2*hangs + 2*abandonEvery) // to take it back, while the server hangs
	eventually(t, "it has hung for long", func() bool { return time.Now().After(tried) })
	f.server.Resume(t)
	eventually(t, "the question is carried out", func() bool {
		return tell(t, f.server.Addr, "EXISTS", string(f.client.keys.turn(nil, "m"))) == "1"
	})
	eventually(t, "the slot is given back", func() bool {
		f.rests.Advance(rest)
		loads, err := f.Loads(t.Context(), "m", []string{"n"}) // the pool's clock stands
		f.doubts.mu.Lock()
		settled := !f.doubts.running
		f.doubts.mu.Unlock()
		return err == nil && settled && loads[0].InFlight == 1
	})
}

// TestDoubtsAreFew beyond a number, however long Redis is away.
func TestDoubtsAreFew(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.server.Stop()
	choosing := oneSlot("n")
	for range mostDoubts + 9 {
		f.abandon(&choosing)
	}
	f.doubts.mu.Lock()
	defer f.doubts.mu.Unlock()
	if len(f.doubts.all) > mostDoubts {
		t.Errorf("%d doubts, want at most %d", len(f.doubts.all), mostDoubts)
	}
}
