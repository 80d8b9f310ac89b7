package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// The tests here have a Redis that evicts one key of a node. What the others know is kept, and whatever is wrong is so for no
// longer than a lease.

// evict drops one of a node's keys.
func (f *field) evict(kind, id string) {
	f.Helper()
	if answer := tell(f.T, f.server.Addr, "DEL", string(f.client.keys.node(nil, kind, id))); answer != "1" {
		f.Fatalf("%s keys of kind %s", answer, kind)
	}
}

// stands compares where a node stands, and holds that every key that is there has a life.
func (f *field) stands(id string, want pool.NodeLoad) {
	f.Helper()
	loads, err := f.Loads(f.Context(), "m", []string{id})
	if err != nil {
		f.Fatal(err)
	}
	if loads[0].Current = 0; loads[0] != want {
		f.Fatalf("%s stands at %+v, want %+v", id, loads[0], want)
	}
	for key, life := range lives(f.T, f.server.Addr) {
		if life < 0 {
			f.Errorf("%s lives for ever", key)
		}
	}
}

// takes takes a slot for so many tokens and a minute.
func (f *field) takes(id string, tokens int64) pool.Lease {
	f.Helper()
	choosing := oneSlot(id)
	choosing.Prompt = tokens
	chosen, err := f.Choose(f.Context(), choosing)
	if err != nil || chosen.Lease == nil {
		f.Fatalf("chosen %+v, %v", chosen, err)
	}
	return *chosen.Lease
}

func (f *field) beats(id string) {
	f.Helper()
	if _, _, err := f.Beat(f.Context(), id, healthy()); err != nil {
		f.Fatal(err)
	}
}

// TestLostLoad evicts the counters. Leases are counted by the next heartbeat or registration.
func TestLostLoad(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(f *field){
		"beat":     func(f *field) { f.beats("n") },
		"register": func(f *field) { f.join("n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			f.join("n")
			early := f.takes("n", 100)
			f.takes("n", 30)
			f.evict(kindLoad, "n")
			f.stands("n", pool.NodeLoad{})
			again(f)
			f.stands("n", pool.NodeLoad{InFlight: 2, Queued: 130})
			if err := f.Begun(t.Context(), early); err != nil {
				t.Fatal(err)
			}
			f.stands("n", pool.NodeLoad{InFlight: 2, Queued: 30})
			if next := f.takes("n", 7); next.Ahead != 30 {
				t.Errorf("%d tokens are ahead, want 30", next.Ahead)
			}
			f.clock.Advance(time.Minute + time.Millisecond)
			f.stands("n", pool.NodeLoad{})
		})
	}
}

// TestLostDetails evicts what leases have queued, on a node that is never without any.
func TestLostDetails(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	f.takes("n", 100)
	f.takes("n", 30)
	f.evict(kindLease, "n")
	f.clock.Advance(40 * time.Second)
	f.takes("n", 5)
	f.clock.Advance(20*time.Second + time.Millisecond)
	f.stands("n", pool.NodeLoad{InFlight: 1, Queued: 5})
	// One that has begun without anybody knowing what it had queued takes nothing from the others.
	f.beats("n")
	begun := f.takes("n", 50)
	f.evict(kindLease, "n")
	tell(t, f.server.Addr, "HSET", string(f.client.keys.node(nil, kindLease, "n")), string(begun.ID), "900")
	if err := f.Begun(t.Context(), begun); err != nil {
		t.Fatal(err)
	}
	loads, err := f.Loads(t.Context(), "m", []string{"n"})
	if err != nil || loads[0].Queued != 0 {
		t.Errorf("%+v, %v; want nothing queued, and never less", loads, err)
	}
}

// TestLostLeasesOfNodes evicts the leases, of which one tries the node's circuit. The next one may try it when that would have
// ended.
func TestLostLeasesOfNodes(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	for range pool.BreakAfter {
		if err := f.Release(t.Context(), pool.Release{Lease: f.takes("n", 1), Outcome: pool.Failed}); err != nil {
			t.Fatal(err)
		}
	}
	f.clock.Advance(pool.BreakCooldown)
	if trial := f.takes("n", 10); !trial.Trial {
		t.Fatalf("%+v is no trial", trial)
	}
	f.evict(kindInflight, "n")
	f.clock.Advance(time.Minute + time.Millisecond)
	if trial := f.takes("n", 20); !trial.Trial {
		t.Fatalf("%+v is no trial", trial)
	}
	f.stands("n", pool.NodeLoad{InFlight: 1, Queued: 20, Failures: pool.BreakAfter, Probing: true})
}

// TestManyLeasesLost has more of them than a script looks at together.
func TestManyLeasesLost(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.join("n")
	const many = 2100
	var all []pool.NodeRenewal
	for n := range many {
		all = append(all, pool.NodeRenewal{Restore: true, Lease: pool.Lease{ID: pool.ID(fmt.Sprint("lease-", n)), Node: "n", Model: "m"}})
	}
	if gone, err := f.Renew(t.Context(), all, time.Minute); err != nil || len(gone) > 0 {
		t.Fatal(gone, err)
	}
	choosing := oneSlot("n")
	choosing.Contenders[0].Candidate = selection.Candidate{Node: "n", Base: 1, Perf: 1, Max: 9999, Slots: 9999}
	if chosen, err := f.Choose(t.Context(), choosing); err != nil || chosen.Lease == nil {
		t.Fatal(chosen, err)
	}
	f.evict(kindLoad, "n")
	f.beats("n")
	f.stands("n", pool.NodeLoad{InFlight: many + 1, Queued: 10})
	f.clock.Advance(-time.Hour)
	f.beats("n")
	f.stands("n", pool.NodeLoad{InFlight: many + 1, Queued: 10})
	f.clock.Advance(time.Minute + time.Millisecond)
	f.stands("n", pool.NodeLoad{})
}
