package pooltest

import (
	"time"

	"github.com/ai-process/ktms/pool"
)

var nodeLeaseTests = []nodeTest{
	{"end by themselves", testNodeLeaseEnds},
	{"give back what they took when they end", testNodeLeaseHeals},
	{"have no prompt queued once the answer has begun", testBegun},
	{"go on when renewed", testNodeRenew},
	{"are taken anew where that is asked for", testRestore},
	{"are released once", testReleaseOnce},
	{"say how the call went even after their end", testReleaseLate},
}

func testNodeLeaseEnds(h *nodesHarness) {
	// Deadlines are rounded up to the next millisecond, and it is 123.456 ms past a second.
	const rounded = 544 * time.Microsecond
	h.join("n", 1)
	h.takeOn("n", 1)
	h.clock.Advance(lease + rounded - time.Microsecond)
	h.wantInFlight("n", 1, 10)
	h.wantFull(h.choosing(contender("n", 1)))
	h.clock.Advance(time.Microsecond)
	h.wantInFlight("n", 0, 0)
	// On a whole millisecond nothing is rounded.
	h.takeOn("n", 1)
	h.clock.Advance(lease - time.Microsecond)
	h.wantFull(h.choosing(contender("n", 1)))
	h.clock.Advance(time.Microsecond)
	second := h.takeOn("n", 1)
	if second.Ahead != 0 {
		h.Errorf("%d tokens are ahead of the next one", second.Ahead)
	}
	// A part of a millisecond is one.
	h.clock.Advance(lease)
	c := h.choosing(contender("n", 1))
	c.TTL = 1500 * time.Microsecond
	h.take(c)
	h.clock.Advance(2*time.Millisecond - time.Microsecond)
	h.wantInFlight("n", 1, 10)
	h.clock.Advance(time.Microsecond)
	h.wantInFlight("n", 0, 0)
}

func testNodeLeaseHeals(h *nodesHarness) {
	h.join("n", 9)
	var leases []pool.Lease
	for i := range int64(5) {
		c := h.choosing(contender("n", 9))
		c.Prompt, c.TTL = 1<<(10*i), time.Duration(i+1)*time.Minute
		leases = append(leases, h.take(c))
	}
	const k = int64(1) << 10
	h.wantInFlight("n", 5, 1+k+k*k+k*k*k+k*k*k*k)
	h.begun(leases[1])
	h.wantInFlight("n", 5, 1+k*k+k*k*k+k*k*k*k)
	step := func(leases, queued int64) {
		h.Helper()
		h.clock.Advance(time.Minute)
		h.wantInFlight("n", leases, queued)
		h.wantInFlight("n", leases, queued)
	}
	h.clock.Advance(time.Millisecond)
	step(4, k*k+k*k*k+k*k*k*k)
	step(3, k*k+k*k*k+k*k*k*k) // it had begun
	// The next one to choose heals, and what it takes stays when what was healed is released.
	h.clock.Advance(time.Minute)
	if next := h.takeOn("n", 9); next.Ahead != k*k*k+k*k*k*k {
		h.Errorf("%d tokens are ahead, want %d", next.Ahead, k*k*k+k*k*k*k)
	}
	for _, ended := range leases[:3] {
		h.begun(ended)
		h.release(ended, pool.Succeeded)
		h.wantInFlight("n", 3, 10+k*k*k+k*k*k*k)
	}
	h.clock.Advance(time.Millisecond)
	step(1, k*k*k*k)
	h.release(leases[4], pool.Succeeded)
	h.wantInFlight("n", 0, 0)
}

func testBegun(h *nodesHarness) {
	h.join("n", 9)
	first, second := h.takeOn("n", 9), h.takeOn("n", 9)
	h.begun(first)
	h.wantInFlight("n", 2, 10)
	h.begun(first)
	h.wantInFlight("n", 2, 10)
	h.release(first, pool.Succeeded)
	h.wantInFlight("n", 1, 10)
	h.begun(first)
	h.release(second, pool.Succeeded)
	h.begun(second)
	h.wantInFlight("n", 0, 0)
	h.begun(pool.Lease{ID: h.newID(), Node: "n", Queued: 5})
	h.wantInFlight("n", 0, 0)
	// The time that renewals give is for the slot, not for the queue.
	third := h.takeOn("n", 9)
	h.renew(2*lease, []pool.NodeRenewal{{Lease: third}})
	h.wantInFlight("n", 1, 10)
	h.begun(third)
	h.renew(2*lease, []pool.NodeRenewal{{Lease: third}})
	h.wantInFlight("n", 1, 0)
}

func testNodeRenew(h *nodesHarness) {
	h.join("n", 9)
	h.join("m", 9)
	kept, lost, other := h.takeOn("n", 9), h.takeOn("n", 9), h.takeOn("m", 9)
	h.clock.Advance(lease - time.Second)
	h.renew(lease, []pool.NodeRenewal{{Lease: kept}, {Lease: other, Restore: true}})
	h.clock.Advance(lease - time.Second)
	h.wantInFlight("n", 1, 10)
	h.wantInFlight("m", 1, 10)
	never := pool.Lease{ID: h.newID(), Node: "n"}
	nowhere := pool.Lease{ID: h.newID(), Node: "x"}
	h.renew(lease, []pool.NodeRenewal{
		{Lease: never}, {Lease: kept}, {Lease: lost}, {Lease: nowhere, Restore: true}, {Lease: other},
	}, never.ID, lost.ID, nowhere.ID)
	h.wantInFlight("n", 1, 10)
	// The last word counts, though it be shorter.
	h.renew(time.Second, []pool.NodeRenewal{{Lease: kept}})
	h.clock.Advance(time.Second + time.Millisecond)
	h.wantInFlight("n", 0, 0)
	h.wantInFlight("m", 1, 10)
	h.clock.Advance(lease - time.Second)
	h.wantInFlight("m", 0, 0)
	h.renew(lease, []pool.NodeRenewal{{Lease: kept}, {Lease: other}}, kept.ID, other.ID)
	h.wantInFlight("n", 0, 0)
	h.wantInFlight("m", 0, 0)
	h.renew(lease, nil)
}

func testRestore(h *nodesHarness) {
	h.join("n", 1)
	late := h.takeOn("n", 1)
	h.clock.Advance(lease + time.Millisecond)
	next := h.takeOn("n", 1)
	h.renew(lease, []pool.NodeRenewal{{Lease: late}}, late.ID)
	h.wantInFlight("n", 1, 10)
	// Its call is running whether or not there is a slot for it. Its prompt has been read for long.
	h.renew(lease, []pool.NodeRenewal{{Lease: late, Restore: true}})
	h.wantInFlight("n", 2, 10)
	h.renew(lease, []pool.NodeRenewal{{Lease: late, Restore: true}, {Lease: next, Restore: true}})
	h.wantInFlight("n", 2, 10)
	h.begun(late)
	h.wantInFlight("n", 2, 10)
	h.release(next, pool.Succeeded)
	h.wantFull(h.choosing(contender("n", 1)))
	// What is restored ends by itself, can be renewed, and is released like any other.
	h.clock.Advance(lease - time.Second)
	h.renew(lease, []pool.NodeRenewal{{Lease: late}})
	h.clock.Advance(lease - time.Second)
	h.wantInFlight("n", 1, 0)
	h.clock.Advance(time.Second + time.Millisecond)
	h.wantInFlight("n", 0, 0)
	h.renew(lease, []pool.NodeRenewal{{Lease: late, Restore: true}})
	h.releaseAs(pool.Release{Lease: late, Outcome: pool.Succeeded, Idle: time.Minute})
	h.wantLoad("n", pool.NodeLoad{Idle: 1})
	// A call that is over is not running.
	h.renew(lease, []pool.NodeRenewal{{Lease: late, Restore: true}, {Lease: next, Restore: true}}, late.ID, next.ID)
	h.wantLoad("n", pool.NodeLoad{Idle: 1})
	// Neither is one that was released after its lease had ended.
	over := h.takeOn("n", 9)
	h.clock.Advance(lease + time.Millisecond)
	h.release(over, pool.Succeeded)
	h.renew(lease, []pool.NodeRenewal{{Lease: over, Restore: true}}, over.ID)
	h.wantLoad("n", pool.NodeLoad{})
}

func testReleaseOnce(h *nodesHarness) {
	h.join("n", 9)
	first, second := h.takeOn("n", 9), h.takeOn("n", 9)
	release := pool.Release{Lease: first, Outcome: pool.Failed, Idle: time.Minute, Measured: pool.Speed{TTFT: 1, TPS: 10}}
	h.releaseAs(release)
	want := pool.NodeLoad{InFlight: 1, Queued: 10, Failures: 1, Idle: 1}
	h.wantLoad("n", want)
	release.Measured = pool.Speed{TTFT: 2, TPS: 20}
	h.releaseAs(release)
	h.wantLoad("n", want)
	h.wantSpeed("n", "model", pool.Speed{TTFT: 1, TPS: 10})
	h.clock.Advance(time.Minute + time.Millisecond)
	h.releaseAs(release)
	release.Outcome = pool.Succeeded
	h.releaseAs(release)
	h.clock.Advance(pool.ReleaseMemory / 2)
	h.releaseAs(release)
	h.wantLoad("n", pool.NodeLoad{Failures: 1})
	h.wantSpeed("n", "model", pool.Speed{TTFT: 1, TPS: 10})
	h.release(second, pool.Unjudged)
	h.release(second, pool.Failed)
	h.wantLoad("n", pool.NodeLoad{Failures: 1})
}

func testReleaseLate(h *nodesHarness) {
	h.join("n", 9)
	late := h.takeOn("n", 9)
	h.clock.Advance(lease + time.Millisecond)
	other := h.takeOn("n", 9)
	release := pool.Release{Lease: late, Outcome: pool.Failed, Idle: time.Minute, Measured: pool.Speed{TTFT: 1, TPS: 10}}
	for range 2 {
		h.releaseAs(release)
		h.wantLoad("n", pool.NodeLoad{InFlight: 1, Queued: 10, Failures: 1})
		h.wantSpeed("n", "model", pool.Speed{TTFT: 1, TPS: 10})
	}
	// Nobody looks in between: it makes no difference.
	h.clock.Advance(lease + time.Millisecond)
	h.releaseAs(pool.Release{Lease: other, Outcome: pool.Failed, Idle: time.Minute})
	h.wantLoad("n", pool.NodeLoad{Failures: 2})
}
