package main

import (
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/store/storetest"
)

// TestPool_RedisIsAway takes Redis away under load: it hangs, it is killed and comes back empty, and it restarts so quickly that
// hardly a call fails. Meanwhile the cloud serves. Then the machines are back by themselves, and calls that ran through the outage are not forgotten: no machine is sent
// more than it has slots, though every slot is wanted all the time.
func TestPool_RedisIsAway(t *testing.T) {
	const long, lines = 3, 8 // calls that run through, and those who want the other slots
	redis := pooltest.StartRedis(t)
	settings := poolSettings(t)
	settings["REDIS_ADDR"], settings["REDIS_TIMEOUT"] = redis.Addr, "1s"
	w := newPoolWorld(t, 2, settings, true)
	w.join(0, 4)
	w.join(1, 2)
	took := conduct{Took: 20 * time.Millisecond}
	w.release(took)
	for _, outage := range []struct {
		name       string
		away, back func(testing.TB)
	}{
		{"hangs", redis.Pause, redis.Resume},
		{"comes back empty", func(testing.TB) { redis.Stop() }, redis.Start},
		{"restarts", func(t testing.TB) {
			redis.Stop()
			redis.Start(t)
		}, func(testing.TB) {}},
	} {
		t.Run(outage.name, func(t *testing.T) {
			w := w.within(t)
			running := w.crowd(holdText, long, w.gateways...)
			storetest.Eventually(t, patience, "calls are with the engines", func() bool { return w.held() == long })
			load := w.load(lines, w.gateways...)
			outage.away(t)
			for _, g := range w.gateways {
				storetest.Eventually(t, patience, "the cloud serves", func() bool { return w.call(g, "go on", false).text == cloudName })
			}
			outage.back(t)
			back := time.Now()
			for _, n := range w.nodes {
				n.awaitState(ktmsv1.NodeState_NODE_STATE_HEALTHY)
				before := n.books().Served
				storetest.Eventually(t, patience, n.id+" serves again", func() bool {
					got := n.books()
					return got.Served > before || got.Held == n.max
				})
				t.Logf("%s serves again %v after Redis came back", n.id, time.Since(back).Round(time.Millisecond))
			}
			served := w.served()
			storetest.Eventually(t, patience, "the free slots are used again", func() bool { return w.served() >= served+100 })
			for _, g := range w.gateways {
				storetest.Eventually(t, patience, "the slots of the calls that went on are taken", func() bool {
					slots, _ := w.inFlight(g)
					return slots >= long
				})
			}
			by := w.allServed(load())
			t.Logf("the load was served by %v", by)
			w.notOverbooked()
			w.release(took)
			w.allServed(running())
			w.free()
		})
	}
}
