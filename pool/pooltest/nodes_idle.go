package pooltest

import (
	"time"

	"github.com/ai-process/ktms/pool"
)

var idleTests = []nodeTest{
	{"count for nodes that give a share of their time", testIdle},
	{"end by themselves", testIdleEnds},
	{"end with another level", testIdleLevel},
}

// pacedContender is one whose slots are held idle.
func pacedContender(id string, slots int64) pool.Contender {
	c := contender(id, slots)
	c.Paced = true
	return c
}

func testIdle(h *nodesHarness) {
	h.register(spec("n", 2), paced(50))
	h.releaseAs(pool.Release{Lease: h.takeOn("n", 2), Outcome: pool.Succeeded, Idle: 10 * time.Second})
	h.wantLoad("n", pool.NodeLoad{Idle: 1})
	chosen := h.choose(h.choosing(pacedContender("n", 2)))
	if chosen.Lease == nil || chosen.Occupied != 1 {
		h.Fatalf("one is held idle: %+v", chosen)
	}
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Idle: 1, Queued: 10})
	if full := h.wantFull(h.choosing(pacedContender("n", 2))); full.Occupied != 2 {
		h.Errorf("%d slots are taken, want 2", full.Occupied)
	}
	// A node that gives all its time holds nothing idle.
	chosen = h.choose(h.choosing(contender("n", 2)))
	if chosen.Lease == nil || chosen.Occupied != 1 {
		h.Fatalf("one is held idle for nobody: %+v", chosen)
	}
	h.releaseAs(pool.Release{Lease: *chosen.Lease, Outcome: pool.Succeeded})
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Idle: 1, Queued: 10})
	h.wantFull(h.choosing(pacedContender("n", 2)))
}

func testIdleEnds(h *nodesHarness) {
	h.register(spec("n", 3), paced(50))
	var leases []pool.Lease
	for range 3 {
		leases = append(leases, h.takeOn("n", 3))
	}
	h.releaseAs(pool.Release{Lease: leases[0], Idle: 3 * time.Second})
	h.releaseAs(pool.Release{Lease: leases[1], Idle: time.Second})
	h.releaseAs(pool.Release{Lease: leases[2], Idle: time.Microsecond})
	// Deadlines are rounded up to the next millisecond, and it is 123.456 ms past a second.
	const rounded = 544 * time.Microsecond
	h.wantLoad("n", pool.NodeLoad{Idle: 3})
	h.clock.Advance(rounded - time.Microsecond)
	h.wantLoad("n", pool.NodeLoad{Idle: 3})
	h.clock.Advance(time.Microsecond)
	h.wantLoad("n", pool.NodeLoad{Idle: 2})
	h.clock.Advance(time.Second - time.Microsecond)
	h.wantLoad("n", pool.NodeLoad{Idle: 2})
	h.clock.Advance(time.Microsecond)
	h.takeOn("n", 1)
	h.take(h.choosing(pacedContender("n", 3)))
	h.wantFull(h.choosing(pacedContender("n", 3)))
	h.clock.Advance(2*time.Second - time.Microsecond)
	h.wantFull(h.choosing(pacedContender("n", 3)))
	h.clock.Advance(time.Microsecond)
	h.take(h.choosing(pacedContender("n", 3)))
	h.wantLoad("n", pool.NodeLoad{InFlight: 3, Queued: 30})
}

func testIdleLevel(h *nodesHarness) {
	h.register(spec("n", 3), paced(50))
	rest := func() {
		h.Helper()
		h.releaseAs(pool.Release{Lease: h.takeOn("n", 9), Idle: time.Hour})
	}
	rest()
	rest()
	h.beat("n", paced(50))
	h.wantLoad("n", pool.NodeLoad{Idle: 2})
	h.register(spec("n", 3), paced(50))
	h.wantLoad("n", pool.NodeLoad{Idle: 2})
	running := h.takeOn("n", 9)
	if _, load := h.beat("n", paced(80)); load.Idle != 0 {
		h.Errorf("the heartbeat with another level says %+v", load)
	}
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
	h.releaseAs(pool.Release{Lease: running, Idle: time.Hour})
	h.wantLoad("n", pool.NodeLoad{Idle: 1})
	h.register(spec("n", 3), paced(30))
	h.wantLoad("n", pool.NodeLoad{})
	rest()
	h.beat("n", paced(100))
	h.wantLoad("n", pool.NodeLoad{})
}
