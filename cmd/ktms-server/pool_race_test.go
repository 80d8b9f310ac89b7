package main

import (
	"maps"
	"slices"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// The race for slots: so many calls at once on machines of so many slots, which sum up to poolSlots.
const (
	poolCalls = 2_000
	poolSlots = 40
)

// TestPool_NeverOverbooked races three gateways for the slots of eight machines. Each engine counts for itself. Then one of
// the gateways is killed with calls in flight: its slots are taken until the very instants at which their leases end, by
// Redis' clock, and free after that, and the others go on all the time.
func TestPool_NeverOverbooked(t *testing.T) {
	settings := poolSettings(t)
	w := newPoolWorld(t, 3, settings, false)
	a, b, c := w.gateways[0], w.gateways[1], w.gateways[2]
	sum := 0
	for i, slots := range []int{1, 2, 3, 4, 5, 7, 8, 10} {
		w.machine(slots).startAgent(1 + i%2) // the gateways that live on
		sum += slots
	}
	if sum != poolSlots {
		t.Fatalf("there are %d slots", sum)
	}
	for _, n := range w.nodes {
		n.awaitState(ktmsv1.NodeState_NODE_STATE_HEALTHY)
		n.behaves(conduct{Took: 40 * time.Millisecond})
	}
	if t.Run("parallel", func(t *testing.T) {
		w := w.within(t)
		began := time.Now()
		by := w.allServed(w.crowd("go on", poolCalls, a, b, c)())
		t.Logf("%d calls on %d slots took %v", poolCalls, poolSlots, time.Since(began).Round(time.Millisecond))
		served := 0
		for _, n := range w.nodes {
			got := n.books()
			served += got.Served
			if by[n.engine.address] != got.Served {
				t.Errorf("%s served %d, and callers were told of %d", n.id, got.Served, by[n.engine.address])
			}
			t.Logf("%s (%s): %d of %d slots taken at most, %d served", n.id, n.kind, got.Peak, n.max, got.Served)
		}
		if served != poolCalls {
			t.Errorf("%d calls were served", served)
		}
		w.notOverbooked()
		w.free()
	}) {
		t.Run("killed", func(t *testing.T) {
			w.within(t).killOne(leases{t, settings["REDIS_ADDR"], settings["REDIS_KEY_PREFIX"]})
		})
	}
}

// killOne kills the first gateway.
func (w *poolWorld) killOne(redis leases) {
	const ofA, ofB, others, goesOn = 12, 12, 8, 100
	a, b, c := w.gateways[0], w.gateways[1], w.gateways[2]
	surviving := w.crowd(holdText, ofB, b)
	storetest.Eventually(w, patience, "B's calls are with the engines", func() bool { return w.held() == ofB })
	before := redis.slots()
	lost := w.crowd(holdText, ofA, a)
	storetest.Eventually(w, patience, "A's calls are with the engines", func() bool { return w.held() == ofA+ofB })
	mine := redis.slots()
	maps.DeleteFunc(mine, func(id string, _ time.Time) bool { _, other := before[id]; return other })
	if len(mine) != ofA {
		w.Fatalf("A has %d leases, want %d", len(mine), ofA)
	}
	load := w.load(others, b, c) // the engines keep only what asks for it

	a.kill(w.T)
	for _, answer := range lost() {
		if answer.served() {
			w.Errorf("a call of the killed gateway ended with %+v", answer)
		}
	}
	// Nobody renews them any more, so from now on it is known when they end.
	killed := redis.now()
	all := redis.slots()
	ends := make([]time.Time, 0, len(mine))
	for id := range mine {
		ends = append(ends, all[id])
	}
	slices.SortFunc(ends, time.Time.Compare)
	first, last := ends[0], ends[len(ends)-1]
	if !first.After(killed) || last.Sub(killed) > poolLease {
		w.Fatalf("the leases end from %v to %v after the kill, want them to live for at most %v", first.Sub(killed), last.Sub(killed), poolLease)
	}
	answered := w.served()
	storetest.Eventually(w, patience, "the others go on", func() bool { return w.served() >= answered+goesOn })
	by := w.allServed(load())
	w.Logf("the other gateways served %v meanwhile; the leases end %v to %v after the kill", by,
		first.Sub(killed).Round(time.Millisecond), last.Sub(killed).Round(time.Millisecond))
	w.notOverbooked()

	// What is left of the load is given back within moments; then every slot that is taken is known.
	looked := false
	for free, settled := false, false; !free; {
		from := redis.now()
		slots, _ := w.inFlight(c)
		to := redis.now()
		settled = settled || slots == ofA+ofB
		free = from.After(last)
		switch {
		case to.Before(first) && settled:
			looked = true
			if slots != ofA+ofB {
				w.Fatalf("%d slots are taken %v before the first lease ends, want %d", slots, first.Sub(to), ofA+ofB)
			}
		case free && slots != ofB:
			w.Fatalf("%d slots are taken %v after the last lease ended, want %d", slots, from.Sub(last), ofB)
		}
		pause(w.T)
	}
	if !looked {
		w.Error("nobody looked while the leases lived")
	}

	rest := w.crowd(holdText, poolSlots-ofB, c)
	storetest.Eventually(w, patience, "every slot is taken again", func() bool { return w.held() == poolSlots })
	w.release(conduct{})
	w.allServed(append(rest(), surviving()...))
	w.notOverbooked()
	w.free()
}

// slots are the leases of all nodes, and when each is over.
func (l leases) slots() map[string]time.Time {
	l.Helper()
	ends := map[string]time.Time{}
	for _, key := range l.ask("KEYS", "{"+l.prefix+"ktms}:node:inflight:*") {
		if key == "" {
			continue
		}
		words := l.ask("ZRANGE", key, "0", "-1", "WITHSCORES")
		for i := 0; i+1 < len(words); i += 2 {
			ends[words[i]] = time.UnixMilli(l.number(words[i+1]))
		}
	}
	return ends
}
