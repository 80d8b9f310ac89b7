package pooltest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ai-process/ktms/pool"
)

var slotTests = []nodeTest{
	{"are taken one by one", testSlots},
	{"are those of the level", testSlotsOfLevel},
	{"belong to the node, not to a model", testSlotsOfModels},
	{"are taken by others, too", testForeignLoad},
	{"are never too many at the same time", testSlotsAtOnce},
	{"are never too many while others are given back", testSlotsChurn},
	{"do not change when none is free", testNoneFree},
}

func testSlots(h *nodesHarness) {
	h.join("n", 3)
	var leases []pool.Lease
	for i := range int64(3) {
		c := h.choosing(contender("n", 3))
		c.Prompt = 100 + i
		chosen := h.choose(c)
		if chosen.Lease == nil || chosen.Occupied != i {
			h.Fatalf("choice %d: %+v", i, chosen)
		}
		got, want := *chosen.Lease, pool.Lease{ID: c.ID, Node: "n", Model: "model", Queued: 100 + i, Ahead: []int64{0, 100, 201}[i]}
		if want.Turn = got.Turn; got != want {
			h.Errorf("leased %+v, want %+v", *chosen.Lease, want)
		}
		leases = append(leases, *chosen.Lease)
		h.wantInFlight("n", i+1, []int64{100, 201, 303}[i])
	}
	if full := h.wantFull(h.choosing(contender("n", 3))); full.Occupied != 3 {
		h.Errorf("%d slots are taken, want 3", full.Occupied)
	}
	h.release(leases[1], pool.Succeeded)
	h.wantInFlight("n", 2, 202)
	h.takeOn("n", 3)
	h.wantFull(h.choosing(contender("n", 3)))
	h.wantInFlight("n", 3, 212)
	if full := h.wantFull(h.choosing()); full.Occupied != 0 {
		h.Errorf("%d slots of no node are taken", full.Occupied)
	}
}

func testSlotsOfLevel(h *nodesHarness) {
	h.join("n", 4)
	c := contender("n", 4)
	c.Slots = 2
	h.take(h.choosing(c))
	h.take(h.choosing(c))
	h.wantFull(h.choosing(c))
	// Nobody takes back what a higher level gave.
	h.take(h.choosing(contender("n", 4)))
	if full := h.wantFull(h.choosing(c)); full.Occupied != 3 {
		h.Errorf("%d slots are taken, want 3", full.Occupied)
	}
	c.Slots = 0
	h.wantFull(h.choosing(c))
	// More slots than there may be are none.
	c.Max, c.Slots = 3, 9
	h.wantFull(h.choosing(c))
}

func testSlotsOfModels(h *nodesHarness) {
	h.join("n", 2)
	h.takeOn("n", 2)
	c := h.choosing(contender("n", 2))
	c.Model = "other"
	if got := h.take(c); got.Model != "other" {
		h.Errorf("leased for %q", got.Model)
	}
	h.wantFull(h.choosing(contender("n", 2)))
	c = h.choosing(contender("n", 2))
	c.Model = "other"
	h.wantFull(c)
	h.wantInFlight("n", 2, 20)
}

func testForeignLoad(h *nodesHarness) {
	h.join("n", 4)
	h.join("full", 2)
	busy, full := contender("n", 4), contender("full", 2)
	busy.External, full.External = 2, 5
	for i := range int64(2) {
		c := h.choosing(full, busy)
		chosen := h.choose(c)
		if chosen.Lease == nil || chosen.Lease.Node != "n" || chosen.Occupied != 7+i {
			h.Fatalf("choice %d: %+v %+v", i, chosen, chosen.Lease)
		}
	}
	if chosen := h.wantFull(h.choosing(full, busy)); chosen.Occupied != 9 {
		h.Errorf("%d slots are taken, want 9", chosen.Occupied)
	}
	// A slot is free as soon as its lease ends, whatever the last heartbeat said.
	busy.External = 1
	h.take(h.choosing(busy))
	h.wantFull(h.choosing(busy))
	busy.External = -3
	if chosen := h.choose(h.choosing(busy)); chosen.Lease == nil || chosen.Occupied != 3 {
		h.Errorf("less than no foreign load: %+v", chosen)
	}
	// What the caller says of leases, queue, prompt and turn is not read.
	h.join("fresh", 1)
	odd := contender("fresh", 1)
	odd.InFlight, odd.Queued, odd.Matched, odd.Current = 7, 7, 7, 7
	if chosen := h.choose(h.choosing(odd)); chosen.Lease == nil || chosen.Occupied != 0 || chosen.Lease.Ahead != 0 || chosen.Lease.Matched != 0 {
		h.Errorf("a contender with counters: %+v", chosen)
	}
}

// slotsOf are the nodes of the tests with many choosers.
var slotsOf = map[string]int64{"a": 3, "b": 5, "c": 7}

func (h *nodesHarness) crowd() []pool.Contender {
	contenders := []pool.Contender{}
	for _, id := range []string{"a", "b", "c"} {
		h.join(id, slotsOf[id])
		contenders = append(contenders, contender(id, slotsOf[id]))
	}
	return contenders
}

func testSlotsAtOnce(h *nodesHarness) {
	contenders := h.crowd()
	taken := h.chooseAtOnce(50, contenders)
	for id, want := range slotsOf {
		if got := taken[id]; got != want {
			h.Errorf("%d leases on %s, want %d", got, id, want)
		}
		h.wantInFlight(id, want, 10*want)
	}
	if full := h.wantFull(h.choosing(contenders...)); full.Occupied != 3+5+7 {
		h.Errorf("%d slots are taken", full.Occupied)
	}
}

// chooseAtOnce lets so many callers choose at the same time, and counts who got what; those without a slot count under "".
func (h *nodesHarness) chooseAtOnce(callers int, contenders []pool.Contender) map[string]int64 {
	h.Helper()
	taken := map[string]int64{}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for range callers {
		c, client := h.choosing(contenders...), h.client()
		all.Go(func() {
			<-start
			chosen, err := client.Choose(h.Context(), c)
			if err != nil {
				h.Errorf("%v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if chosen.Lease == nil {
				taken[""]++
			} else {
				taken[chosen.Lease.Node]++
			}
		})
	}
	close(start)
	all.Wait()
	return taken
}

func testSlotsChurn(h *nodesHarness) {
	const callers, rounds = 24, 20
	contenders := h.crowd()
	running := map[string]*atomic.Int64{"a": {}, "b": {}, "c": {}}
	var all sync.WaitGroup
	for caller := range callers {
		client := h.client()
		all.Go(func() {
			for round := range rounds {
				c := pool.Choosing{
					ID: pool.ID(fmt.Sprintf("churn-%d-%d", caller, round)), TTL: lease, Model: "model", Contenders: contenders, Prompt: 10,
				}
				chosen, err := client.Choose(h.Context(), c)
				if err != nil {
					h.Errorf("%v", err)
					return
				}
				if chosen.Lease == nil {
					continue
				}
				node := chosen.Lease.Node
				if now := running[node].Add(1); now > slotsOf[node] {
					h.Errorf("%d requests run on %s, which has %d slots", now, node, slotsOf[node])
				}
				if round%2 == 0 {
					err = client.Begun(h.Context(), *chosen.Lease)
				} else {
					_, err = client.Renew(h.Context(), []pool.NodeRenewal{{Lease: *chosen.Lease, Restore: true}}, lease)
				}
				if err != nil {
					h.Errorf("%v", err)
				}
				running[node].Add(-1)
				if err := client.Release(h.Context(), pool.Release{Lease: *chosen.Lease, Outcome: pool.Succeeded}); err != nil {
					h.Errorf("%v", err)
				}
			}
		})
	}
	all.Wait()
	for id := range slotsOf {
		h.wantLoad(id, pool.NodeLoad{})
	}
}

func testNoneFree(h *nodesHarness) {
	h.join("n", 1)
	h.takeOn("n", 1)
	before := h.load("n")
	c := h.choosing(contender("n", 1))
	c.Prefixes = promptOf("a", 10)
	h.wantFull(c)
	h.clock.Advance(time.Second)
	h.wantFull(h.choosing(contender("n", 1)))
	if after := h.load("n"); after != before {
		h.Errorf("a choice of none left %+v, want %+v", after, before)
	}
	h.wantHolders(c.Prefixes, []string{"n/1"}, false)
}
