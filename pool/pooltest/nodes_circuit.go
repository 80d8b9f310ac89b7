package pooltest

import (
	"fmt"
	"time"

	"github.com/ai-process/ktms/pool"
)

var circuitTests = []nodeTest{
	{"open after failures in a row", testCircuitOpens},
	{"let one request try when they have cooled down", testTrial},
	{"let exactly one of many try", testTrialAtOnce},
	{"close when the trial succeeds", testTrialSucceeds},
	{"open again when the trial fails", testTrialFails},
	{"let the next one try when the trial says nothing", testTrialUnjudged},
	{"let the next one try when the trial is lost", testTrialLost},
	{"hear nothing of requests from before a change", testStaleOutcomes},
	{"hear nothing of requests to a node that was removed", testOutcomesOfRemoved},
}

func (h *nodesHarness) wantOpened(id string, at time.Time) {
	h.Helper()
	h.node(id, func(node pool.Node) error {
		if !node.OpenedAt.Equal(at) {
			return fmt.Errorf("the circuit of %s opened at %s, want %s", id, node.OpenedAt, at)
		}
		return nil
	})
}

// tried is a contender whose circuit has cooled down.
func tried(id string, slots int64) pool.Contender {
	c := contender(id, slots)
	c.Trial = true
	return c
}

func testCircuitOpens(h *nodesHarness) {
	h.join("n", 9)
	h.join("other", 9)
	fail := func(times int) {
		h.Helper()
		for range times {
			h.release(h.takeOn("n", 9), pool.Failed)
		}
	}
	fail(pool.BreakAfter - 1)
	h.wantLoad("n", pool.NodeLoad{Failures: pool.BreakAfter - 1})
	h.release(h.takeOn("n", 9), pool.Unjudged)
	h.wantLoad("n", pool.NodeLoad{Failures: pool.BreakAfter - 1})
	h.release(h.takeOn("n", 9), pool.Succeeded)
	h.wantLoad("n", pool.NodeLoad{})
	fail(pool.BreakAfter - 1)
	h.wantOpened("n", time.Time{})
	running := h.takeOn("n", 9)
	h.clock.Advance(time.Second)
	fail(1)
	h.wantOpened("n", h.clock.Now())
	h.wantOpened("other", time.Time{})
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10, Failures: pool.BreakAfter})
	h.clock.Advance(pool.BreakCooldown - time.Microsecond)
	for _, c := range []pool.Contender{contender("n", 9), tried("n", 9)} {
		if full := h.wantFull(h.choosing(c)); full.Occupied != 1 {
			h.Errorf("%d slots of a broken node are taken, want 1", full.Occupied)
		}
	}
	h.release(running, pool.Unjudged)
	if got := h.take(h.choosing(contender("n", 9), contender("other", 9))); got.Node != "other" {
		h.Errorf("chosen %s, want the one that is not broken", got.Node)
	}
}

func testTrial(h *nodesHarness) {
	h.join("n", 9)
	if got := h.take(h.choosing(tried("n", 9))); got.Trial {
		h.Errorf("%+v tries a circuit that is closed", got)
	}
	h.breakNode("n", 9)
	opened := h.clock.Now()
	h.clock.Advance(pool.BreakCooldown)
	// Whether or not the caller's view has the circuit cooled down.
	trial := h.takeOn("n", 9)
	if !trial.Trial {
		h.Errorf("%+v does not try an open circuit", trial)
	}
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20, Failures: pool.BreakAfter, Probing: true})
	for _, c := range []pool.Contender{contender("n", 9), tried("n", 9)} {
		if full := h.wantFull(h.choosing(c)); full.Occupied != 2 {
			h.Errorf("%d slots of a node that is tried are taken, want 2", full.Occupied)
		}
	}
	h.wantOpened("n", opened)
	h.clock.Advance(30 * time.Second)
	h.renew(2*lease, []pool.NodeRenewal{{Lease: trial}})
	h.begun(trial)
	h.clock.Advance(lease + time.Second)
	h.wantFull(h.choosing(tried("n", 9)))
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Failures: pool.BreakAfter, Probing: true})
}

func testTrialAtOnce(h *nodesHarness) {
	h.join("n", 100)
	h.breakNode("n", 100)
	h.clock.Advance(pool.BreakCooldown)
	if taken := h.chooseAtOnce(50, []pool.Contender{tried("n", 100)}); taken["n"] != 1 || taken[""] != 49 {
		h.Errorf("chosen %v, want one that tries the node", taken)
	}
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10, Failures: pool.BreakAfter, Probing: true})
}

func testTrialSucceeds(h *nodesHarness) {
	h.join("n", 9)
	before := h.takeOn("n", 9)
	h.breakNode("n", 9)
	h.clock.Advance(pool.BreakCooldown)
	trial := h.take(h.choosing(tried("n", 9)))
	h.release(trial, pool.Succeeded)
	h.wantOpened("n", time.Time{})
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10})
	after := h.takeOn("n", 9)
	if after.Trial || trial.Turn == before.Turn || after.Turn == trial.Turn || after.Turn == before.Turn {
		h.Errorf("taken before, as trial and after: %+v, %+v, %+v; want another turn each", before, trial, after)
	}
	h.takeOn("n", 9)
	h.wantLoad("n", pool.NodeLoad{InFlight: 3, Queued: 30})
	// A success at a closed circuit changes nothing.
	h.release(after, pool.Succeeded)
	if next := h.takeOn("n", 9); next.Turn != after.Turn {
		h.Errorf("taken in turn %d, want %d", next.Turn, after.Turn)
	}
}

func testTrialFails(h *nodesHarness) {
	h.join("n", 9)
	h.breakNode("n", 9)
	for again := range int64(3) {
		h.clock.Advance(pool.BreakCooldown)
		trial := h.take(h.choosing(tried("n", 9)))
		h.clock.Advance(time.Second)
		h.release(trial, pool.Failed)
		h.wantOpened("n", h.clock.Now())
		h.wantLoad("n", pool.NodeLoad{Failures: pool.BreakAfter + 1 + again})
		h.wantFull(h.choosing(tried("n", 9)))
		h.clock.Advance(pool.BreakCooldown - time.Microsecond)
		h.wantFull(h.choosing(tried("n", 9)))
		h.clock.Advance(time.Microsecond - pool.BreakCooldown)
	}
	// One success is enough, and after it as many failures as ever.
	h.clock.Advance(pool.BreakCooldown)
	h.release(h.take(h.choosing(tried("n", 9))), pool.Succeeded)
	for range pool.BreakAfter - 1 {
		h.release(h.takeOn("n", 9), pool.Failed)
	}
	h.takeOn("n", 9)
	h.wantOpened("n", time.Time{})
}

func testTrialUnjudged(h *nodesHarness) {
	h.join("n", 9)
	h.breakNode("n", 9)
	opened := h.clock.Now()
	h.clock.Advance(pool.BreakCooldown)
	for range 2 {
		h.release(h.take(h.choosing(tried("n", 9))), pool.Unjudged)
		h.wantLoad("n", pool.NodeLoad{Failures: pool.BreakAfter})
		h.wantOpened("n", opened)
	}
	if trial := h.take(h.choosing(tried("n", 9))); !trial.Trial {
		h.Errorf("%+v does not try an open circuit", trial)
	}
	h.wantFull(h.choosing(tried("n", 9)))
}

func testTrialLost(h *nodesHarness) {
	h.join("n", 9)
	h.breakNode("n", 9)
	h.clock.Advance(pool.BreakCooldown)
	lost := h.take(h.choosing(tried("n", 9)))
	h.clock.Advance(lease)
	h.wantFull(h.choosing(tried("n", 9)))
	h.clock.Advance(time.Millisecond)
	h.wantLoad("n", pool.NodeLoad{Failures: pool.BreakAfter})
	trial := h.take(h.choosing(tried("n", 9)))
	if !trial.Trial {
		h.Errorf("%+v does not try an open circuit", trial)
	}
	h.wantFull(h.choosing(tried("n", 9)))
	// The lost one comes back: it says nothing of the request that tries the node now, which goes on.
	h.release(lost, pool.Unjudged)
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10, Failures: pool.BreakAfter, Probing: true})
	h.wantFull(h.choosing(tried("n", 9)))
	// One that failed does, though late.
	h.clock.Advance(lease + time.Millisecond)
	h.release(trial, pool.Failed)
	h.wantOpened("n", h.clock.Now())
	h.wantLoad("n", pool.NodeLoad{Failures: pool.BreakAfter + 1})
	h.wantFull(h.choosing(tried("n", 9)))
}

func testStaleOutcomes(h *nodesHarness) {
	h.join("n", 20)
	var early []pool.Lease
	for range 4 {
		early = append(early, h.takeOn("n", 20))
	}
	h.breakNode("n", 20)
	opened := h.clock.Now()
	h.clock.Advance(time.Second)
	h.release(early[0], pool.Succeeded)
	h.release(early[1], pool.Failed)
	h.wantOpened("n", opened)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20, Failures: pool.BreakAfter})
	h.clock.Advance(pool.BreakCooldown - time.Second)
	trial := h.take(h.choosing(tried("n", 20)))
	h.release(early[2], pool.Succeeded)
	h.wantOpened("n", opened)
	h.wantLoad("n", pool.NodeLoad{InFlight: 2, Queued: 20, Failures: pool.BreakAfter, Probing: true})
	h.release(trial, pool.Succeeded)
	h.wantOpened("n", time.Time{})
	h.release(h.takeOn("n", 20), pool.Failed)
	h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10, Failures: 1})
	h.release(early[3], pool.Succeeded)
	h.wantLoad("n", pool.NodeLoad{Failures: 1})
}

func testOutcomesOfRemoved(h *nodesHarness) {
	h.join("n", 9)
	var early []pool.Lease
	for range pool.BreakAfter {
		early = append(early, h.takeOn("n", 9))
	}
	h.clock.Advance(time.Second)
	h.remove("n", "")
	h.join("n", 9)
	for _, l := range early {
		h.release(l, pool.Failed)
	}
	h.wantLoad("n", pool.NodeLoad{})
	h.wantOpened("n", time.Time{})
	h.release(h.takeOn("n", 9), pool.Failed)
	h.wantLoad("n", pool.NodeLoad{Failures: 1})
}
