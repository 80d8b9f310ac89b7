package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// The money race: so many calls at once, of which the cap allows so few.
const (
	parallelCalls = 200
	capCalls      = 20
	capNano       = capCalls * callNano // 1 USD
	moneyRuns     = 20
)

// pollEvery is how often the spend is looked at while calls run. Each look asks Postgres and Redis.
const pollEvery = 20 * time.Millisecond

// shared are the settings of processes that share a database and a Redis.
func shared(t testing.TB) map[string]string {
	t.Helper()
	return map[string]string{
		"DATABASE_URL": storetest.Postgres(t), "REDIS_ADDR": pooltest.Redis(t), "REDIS_KEY_PREFIX": pooltest.Prefix(t),
		// A call that could not be counted would be a hole in the test.
		"SPEND_LIMITS_FAIL_MODE": spendClosed,
	}
}

// awaitLongDay waits for the next day when this one ends soon, and its counters with it.
func awaitLongDay(t *testing.T) {
	t.Helper()
	const enough = 2 * time.Minute
	storetest.Eventually(t, enough+patience, "a new day", func() bool {
		now := time.Now().UTC()
		return now.Add(enough).Day() == now.Day()
	})
}

// TestMoney_TwoProcessesShareACap races two processes for the money of one key, again and again. The odd runs have a
// vendor that refuses some calls, whose money is free for others then.
func TestMoney_TwoProcessesShareACap(t *testing.T) {
	awaitLongDay(t)
	settings := shared(t)
	a := startProcess(t, admit.DefaultLease, settings)
	b := startProcess(t, admit.DefaultLease, settings)
	vendor := newTill(t)
	vendor.sell(t, a.Instance)
	runs := make([]*moneyRun, moneyRuns)
	for i := range runs {
		name := fmt.Sprintf("run-%d", i)
		runs[i] = &moneyRun{T: t, vendor: vendor, processes: []*servertest.Instance{a.Instance, b.Instance}, name: name,
			key: vendor.customer(t, a.Instance, name, capNano)}
		if i%2 == 1 {
			vendor.of(name).refuse = capCalls / 2
		}
	}
	storetest.Eventually(t, patience, "B knows the cap that was set last", func() bool {
		w, err := spend(t.Context(), b.Instance, runs[moneyRuns-1].name)
		return err == nil && w.GetLimitNanousd() == capNano
	})
	for _, run := range runs {
		if run.race(); t.Failed() {
			return // the others would say the same
		}
	}
}

// moneyRun is one race for the money of one key.
type moneyRun struct {
	*testing.T
	vendor    *till
	processes []*servertest.Instance
	name, key string

	served int
	cost   int64
}

func (r *moneyRun) race() {
	r.Helper()
	watching, stop := context.WithCancel(r.Context())
	var watchers sync.WaitGroup
	for _, p := range r.processes {
		watchers.Go(func() { r.watch(watching, p) })
	}
	left := r.attempts(parallelCalls)
	r.settles()
	left = r.attempts(left)
	settled := r.settles()
	stop()
	watchers.Wait()
	if r.served != capCalls {
		r.Errorf("%s: %d calls were served, want exactly %d", r.name, r.served, capCalls)
	}
	if settled != r.cost || settled != capNano {
		r.Errorf("%s: settled are %d nano-USD, callers were told %d, and the cap is %d", r.name, settled, r.cost, capNano)
	}
	if peak := r.vendor.of(r.name).peakOf(); peak != capCalls {
		r.Errorf("%s: the vendor had %d calls open or billed at one time, want %d", r.name, peak, capCalls)
	}
	if left != parallelCalls-capCalls {
		r.Errorf("%s: %d calls are left of %d", r.name, left, parallelCalls)
	}
}

// attempts makes so many calls at once, spread over the processes, and returns how many were not served.
func (r *moneyRun) attempts(n int) (left int) {
	r.Helper()
	answers := make([]answered, n)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() {
			answers[i] = r.vendor.buy(r.Context(), r.processes[i%len(r.processes)], r.key, i/len(r.processes)%2 == 1)
		})
	}
	callers.Wait()
	for _, a := range answers {
		r.cost += a.cost
		switch {
		case a.served() && a.cost == callNano:
			r.served++
		case a.status == http.StatusTooManyRequests || a.status == http.StatusBadRequest:
			left++
		default:
			r.Fatalf("%s: a call ended with %+v", r.name, a)
		}
	}
	return left
}

// watch looks at the spend through one of the processes while calls run.
func (r *moneyRun) watch(ctx context.Context, p *servertest.Instance) {
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	for {
		w, err := spend(ctx, p, r.name)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.Errorf("%s: %v", r.name, err)
			return
		case w.GetSpentNanousd() > capNano || w.GetReservedNanousd() < 0 || w.GetSpentNanousd() < w.GetReservedNanousd() ||
			w.GetRemainingNanousd() != capNano-w.GetSpentNanousd():
			r.Errorf("%s: the spend is %v", r.name, w)
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// settles waits until nothing is reserved, and returns what is settled.
func (r *moneyRun) settles() (nano int64) {
	r.Helper()
	storetest.Eventually(r, patience, "nothing of "+r.name+" is reserved", func() bool {
		w, err := spend(r.Context(), r.processes[0], r.name)
		nano = w.GetSpentNanousd()
		return err == nil && w.GetReservedNanousd() == 0
	})
	return nano
}
