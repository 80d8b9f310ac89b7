package pooltest

import (
	"time"

	"github.com/ai-process/ktms/pool"
)

// clockTests set the clock back by much longer than anything lasts. In the minutes that follow, things end as they should.
var clockTests = []nodeTest{
	{"leaves no lease of who renews it no more", testLeasesSetBack},
	{"leaves no slot idle for longer", testIdleSetBack},
	{"keeps no circuit open for longer", testCircuitSetBack},
}

const setBack = 6 * time.Hour

// minutes lets so many go by, with heartbeats.
func (h *nodesHarness) minutes(many int, id string) {
	h.Helper()
	for range 12 * many {
		h.clock.Advance(5 * time.Second)
		h.beat(id, paced(50))
	}
}

func testLeasesSetBack(h *nodesHarness) {
	h.register(spec("n", 9), paced(50))
	h.takeOn("n", 9)
	renewed := h.takeOn("n", 9)
	h.clock.Advance(-setBack)
	h.beat("n", paced(50))
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20})
	h.renew(time.Hour, []pool.NodeRenewal{{Lease: renewed}})
	h.clock.Advance(lease - time.Millisecond)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20})
	h.minutes(1, "n")
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
	h.release(renewed, pool.Succeeded)
	h.wantLoad("n", pool.NodeLoad{})
	// As well where the node registers anew.
	h.takeOn("n", 9)
	h.clock.Advance(-setBack)
	h.register(spec("n", 9), paced(50))
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
	h.clock.Advance(lease + time.Millisecond) // ends are rounded up
	h.wantLoad("n", pool.NodeLoad{})
}

func testIdleSetBack(h *nodesHarness) {
	h.register(spec("n", 9), paced(50))
	h.releaseAs(pool.Release{Lease: h.takeOn("n", 9), Idle: time.Minute})
	h.clock.Advance(-setBack)
	h.beat("n", paced(50))
	h.wantLoad("n", pool.NodeLoad{Idle: 1})
	h.clock.Advance(time.Minute - time.Millisecond)
	h.wantLoad("n", pool.NodeLoad{Idle: 1})
	h.clock.Advance(2 * time.Millisecond) // ends are rounded up
	h.wantLoad("n", pool.NodeLoad{})
}

func testCircuitSetBack(h *nodesHarness) {
	h.register(spec("n", 9), paced(50))
	h.breakNode("n", 9)
	h.clock.Advance(time.Microsecond - pool.BreakCooldown)
	h.wantFull(h.choosing(contender("n", 9)))
	h.clock.Advance(-setBack)
	h.beat("n", paced(50))
	h.minutes(1, "n")
	if !h.takeOn("n", 9).Trial {
		h.Errorf("a request to a node whose circuit is open is no trial")
	}
}
