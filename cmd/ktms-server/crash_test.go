package main

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// crashLease is short, so that the test is, and long enough for renewals on a machine that is busy.
const crashLease = 9 * time.Second

// hangs is longer than a process needs to close its doors, and shorter than it waits for Redis then.
const hangs = 2 * time.Second

// TestMoney_AKilledProcessHoldsItsLeasesOnly kills one of two processes with calls in flight. What they reserve is held
// until the very instants at which their leases end, by Redis' clock; then it is free, and all that is spent is what was
// settled. A call in flight on the other process is older than its lease by then, and keeps what it reserves.
func TestMoney_AKilledProcessHoldsItsLeasesOnly(t *testing.T) {
	const settledCalls, survivors, lostCalls = 8, 1, 50
	const nano = (settledCalls + survivors + lostCalls) * callNano
	awaitLongDay(t)
	settings := shared(t)
	a, b := startProcess(t, crashLease, settings), startProcess(t, crashLease, settings)
	vendor := newTill(t)
	vendor.sell(t, a.Instance)
	key := vendor.customer(t, a.Instance, "crash", nano)
	redis := leases{t, settings["REDIS_ADDR"], settings["REDIS_KEY_PREFIX"]}
	looksLike := func(settled, reserved int64) {
		t.Helper()
		storetest.Eventually(t, patience, "B sees what is settled and reserved", func() bool {
			w, err := spend(t.Context(), b.Instance, "crash")
			return err == nil && w.GetLimitNanousd() == nano && w.GetReservedNanousd() == reserved*callNano &&
				w.GetSpentNanousd() == (settled+reserved)*callNano
		})
	}
	looksLike(0, 0)

	told := int64(0)
	for _, answer := range vendor.crowd(t.Context(), a.Instance, key, settledCalls)() {
		if !answer.served() {
			t.Fatalf("a call ended with %+v", answer)
		}
		told += answer.cost
	}
	looksLike(settledCalls, 0)
	release := vendor.of("crash").holdsFromNow()
	defer release()
	surviving := vendor.crowd(t.Context(), b.Instance, key, survivors)
	looksLike(settledCalls, survivors)
	of := redis.ends()
	var survivor string
	for lease := range of {
		survivor = lease
	}
	lost := vendor.crowd(t.Context(), a.Instance, key, lostCalls)
	looksLike(settledCalls, survivors+lostCalls)

	a.kill(t)
	for _, answer := range lost() {
		if answer.served() || answer.err == nil {
			t.Errorf("a call of the killed process ended with %+v", answer)
		}
	}
	// Nobody renews them any more, so from now on it is known when they end.
	of = redis.ends()
	delete(of, survivor)
	if len(of) != lostCalls {
		t.Fatalf("%d leases are left of %d", len(of), lostCalls)
	}
	var first, last time.Time
	for _, end := range of {
		if first.IsZero() || end.Before(first) {
			first = end
		}
		if end.After(last) {
			last = end
		}
	}
	held := 0
	for free := false; !free; {
		before := redis.now()
		w, err := spend(t.Context(), b.Instance, "crash")
		after := redis.now()
		if err != nil {
			t.Fatal(err)
		}
		reserved := w.GetReservedNanousd()
		free = before.After(last)
		switch {
		case w.GetSpentNanousd()-reserved != told:
			t.Fatalf("settled are %d, want the %d that callers were told", w.GetSpentNanousd()-reserved, told)
		case after.Before(first) && reserved != (survivors+lostCalls)*callNano:
			t.Fatalf("only %d are reserved %v before the first lease ends", reserved, first.Sub(after))
		case free && reserved != survivors*callNano:
			t.Fatalf("%d are reserved %v after the last lease ended", reserved, before.Sub(last))
		case after.Before(first):
			// All the money is taken for as long as that. A call that is admitted later would wait for the vendor.
			ctx, cancel := context.WithTimeout(t.Context(), first.Sub(after))
			answer := vendor.buy(ctx, b.Instance, key, false)
			cancel()
			if redis.now().Before(first) && answer.status != http.StatusTooManyRequests {
				t.Fatalf("a call beyond the cap ended with %+v", answer)
			}
			held++
		}
		pause(t)
	}
	looksLike(settledCalls, survivors)
	if held == 0 {
		t.Error("nobody looked while the leases lived")
	}

	release()
	for _, answer := range surviving() {
		if !answer.served() {
			t.Errorf("the call of the other process ended with %+v", answer)
		}
		told += answer.cost
	}
	served := 0
	for _, answer := range vendor.crowd(t.Context(), b.Instance, key, lostCalls+5)() {
		if answer.served() {
			served++
		}
		told += answer.cost
	}
	if served != lostCalls {
		t.Errorf("%d calls were served with the money that is free again, want %d", served, lostCalls)
	}
	if told != nano {
		t.Errorf("callers were told %d nano-USD together, want the whole cap of %d", told, nano)
	}
	looksLike(settledCalls+survivors+lostCalls, 0)
}

// TestMoney_AProcessThatIsAskedToEndBooksEverything sends SIGTERM to a process with calls in flight. They are answered in
// full, and all of them are booked before the process is gone, also when Redis hangs for a moment just then.
func TestMoney_AProcessThatIsAskedToEndBooksEverything(t *testing.T) {
	const calls = 50
	awaitLongDay(t)
	redis := pooltest.StartRedis(t)
	settings := shared(t)
	settings["REDIS_ADDR"] = redis.Addr
	a, b := startProcess(t, admit.DefaultLease, settings), startProcess(t, admit.DefaultLease, settings)
	vendor := newTill(t)
	vendor.sell(t, a.Instance)
	key := vendor.customer(t, a.Instance, "ends", 2*calls*callNano)
	release := vendor.of("ends").holdsFromNow()
	defer release()
	flying := vendor.crowd(t.Context(), a.Instance, key, calls)
	storetest.Eventually(t, patience, "all calls are at the vendor", func() bool { return vendor.of("ends").openNow() == calls })
	a.terminate(t)
	storetest.Eventually(t, patience, "the process shuts down", func() bool { return a.logs("shutting down") })
	redis.Pause(t)
	release()
	told := int64(0)
	for _, answer := range flying() {
		if !answer.served() {
			t.Errorf("a call in flight ended with %+v", answer)
		}
		told += answer.cost
	}
	select {
	case err := <-a.exited:
		t.Errorf("the process ended before Redis took its bookings: %v", err)
	case <-time.After(hangs):
	}
	redis.Resume(t)
	a.ends(t)
	w, err := spend(t.Context(), b.Instance, "ends")
	if err != nil {
		t.Fatal(err)
	}
	if w.GetReservedNanousd() != 0 || w.GetSpentNanousd() != told || told != calls*callNano {
		t.Errorf("the process left %v, and callers were told %d, want %d", w, told, calls*callNano)
	}
}

// crowd makes so many calls at once, every other one streamed, and returns how to wait for their answers.
func (v *till) crowd(ctx context.Context, s *servertest.Instance, key string, n int) (wait func() []answered) {
	answers := make([]answered, n)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() { answers[i] = v.buy(ctx, s, key, i%2 == 1) })
	}
	return func() []answered {
		callers.Wait()
		return answers
	}
}

// pause lets others work between two looks.
func pause(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// leases reads the reservations of a day's spend where Redis keeps them.
type leases struct {
	*testing.T
	address, prefix string
}

func (l leases) ask(words ...string) []string {
	l.Helper()
	answer, err := pooltest.Command(l.address, words...)
	if err != nil {
		l.Fatal(err)
	}
	return strings.Split(answer, "\n")
}

// now is Redis' clock.
func (l leases) now() time.Time {
	l.Helper()
	now := l.ask("TIME")
	return time.Unix(l.number(now[0]), l.number(now[1])*1000)
}

// ends are the leases of the only such window, and when each is over.
func (l leases) ends() map[string]time.Time {
	l.Helper()
	keys := l.ask("KEYS", "{"+l.prefix+"*}:l:spend:key:day:*")
	if len(keys) != 1 || keys[0] == "" {
		l.Fatalf("the leases are in %q, want one key", keys)
	}
	ends := map[string]time.Time{}
	words := l.ask("ZRANGE", keys[0], "0", "-1", "WITHSCORES")
	for i := 0; i+1 < len(words); i += 2 {
		ends[words[i]] = time.UnixMicro(l.number(words[i+1]))
	}
	return ends
}

func (l leases) number(text string) int64 {
	l.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		l.Fatal(err)
	}
	return n
}
