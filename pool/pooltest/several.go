package pooltest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

var severalTests = []test{
	{"book all or none", testAllOrNone},
	{"are settled one by one", testSeveralSettled},
	{"may be none", testNone},
	{"admit exactly what fits at the same time", testConcurrent},
	{"admit exactly what fits while others end", testConcurrentEnds},
}

func testAllOrNone(t *testing.T, opener Opener) {
	h := opener.open(t)
	charges := []pool.Charge{
		of(1, perMinute("rpm", 60, 9)),
		of(50, within("day", 100, pool.Day)),
		of(100, perMinute("tpm", 600, 299)),
		of(7, within("month", 1000, pool.Month)),
		of(0, within("free", 1, pool.Span(5*time.Second))),
	}
	untilMidnight := time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC).Sub(noon)
	for _, c := range []struct {
		name string
		full []pool.Charge // what is booked besides
		want []pool.Refused
	}{
		{"nothing is full", nil, nil},
		{"the first", []pool.Charge{of(10, charges[0])}, []pool.Refused{{Charge: charges[0], RetryAfter: time.Second}}},
		{"the second", []pool.Charge{of(51, charges[1])}, []pool.Refused{{Charge: charges[1], RetryAfter: untilMidnight}}},
		{"the third", []pool.Charge{of(250, charges[2])}, []pool.Refused{{Charge: charges[2], RetryAfter: 5 * time.Second}}},
		{"the last", []pool.Charge{of(1, charges[4])}, []pool.Refused{{Charge: charges[4], RetryAfter: 2876544 * time.Microsecond}}},
		{"some", []pool.Charge{of(250, charges[2]), of(10, charges[0]), of(51, charges[1])}, []pool.Refused{
			{Charge: charges[0], RetryAfter: time.Second},
			{Charge: charges[1], RetryAfter: untilMidnight},
			{Charge: charges[2], RetryAfter: 5 * time.Second},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := opener.open(t)
			if c.full != nil {
				h.admit(c.full...)
			}
			before := h.readAll(charges)
			_, bookings, refusal := h.try(charges...)
			if refusal == nil {
				if c.want != nil {
					t.Fatalf("admitted as %+v, want a refusal", bookings)
				}
				for i, b := range bookings {
					if b.Charge != charges[i] || !same(b.Standing, h.read(charges[i])) {
						t.Errorf("number %d was booked as %+v", i, b)
					}
				}
				return
			}
			if len(refusal.Refused) != len(c.want) {
				t.Fatalf("refused by %+v, want %+v", refusal.Refused, c.want)
			}
			for i, r := range refusal.Refused {
				at := slices.Index(charges, r.Charge)
				if r.Charge != c.want[i].Charge || r.RetryAfter != c.want[i].RetryAfter || r.Never || !same(r.Standing, before[at]) {
					t.Errorf("refused with %+v, want %+v standing at %+v", r, c.want[i], before[at])
				}
			}
			if after := h.readAll(charges); !slices.EqualFunc(before, after, same) {
				t.Errorf("a refusal left %+v, want %+v", after, before)
			}
		})
	}
	never := of(101, charges[1])
	if refused := h.refuse(charges[0], never, of(301, charges[2])); len(refused) != 2 || !refused[0].Never || !refused[1].Never {
		t.Errorf("two that never fit were refused with %+v", refused)
	}
	h.wantRemaining(charges[0], 10)
}

func (h *harness) readAll(charges []pool.Charge) []pool.Standing {
	h.Helper()
	standings, err := h.Read(h.Context(), charges)
	if err != nil || len(standings) != len(charges) {
		h.Fatalf("read %d standings of %d: %v", len(standings), len(charges), err)
	}
	return standings
}

func testSeveralSettled(t *testing.T, opener Opener) {
	h := opener.open(t)
	user, team, month, tpm := within("user", 100, pool.Day), within("team", 100, pool.Day), within("team-month", 500, pool.Month), perMinute("tpm", 600, 299)
	first, ofFirst := h.admit(of(10, user), of(10, team), of(200, tpm), of(10, month))
	second, ofSecond := h.admit(of(20, team), of(20, month))
	h.wantUse(user, 0, 10)
	h.wantUse(team, 0, 30)
	h.wantUse(month, 0, 30)
	h.settle(first, ofFirst, 4, 5, 300, 6)
	h.wantUse(user, 4, 0)
	h.wantUse(team, 5, 20)
	h.wantUse(month, 6, 20)
	h.wantRemaining(tpm, 0)
	h.settle(second, ofSecond, 30, 0)
	h.wantUse(user, 4, 0)
	h.wantUse(team, 35, 0)
	h.wantUse(month, 6, 0)
}

func testNone(t *testing.T, opener Opener) {
	h := opener.open(t)
	id, bookings := h.admit()
	h.settle(id, bookings)
	h.renew(lease, pool.Renewal{ID: id, Bookings: bookings})
	h.debit("nothing")
	if standings, err := h.Read(t.Context(), nil); err != nil || len(standings) != 0 {
		t.Errorf("read %+v, %v", standings, err)
	}
}

// testConcurrent is a cap of one dollar and 200 calls of five cents, all at once.
func testConcurrent(t *testing.T, opener Opener) {
	const callers, cent = 200, 10_000_000 // nano-USD
	h := opener.open(t)
	spend, rpm := within("spend", 100*cent, pool.Day), perMinute("rpm", 30, 29)
	start := make(chan struct{})
	var mu sync.Mutex
	var all sync.WaitGroup
	admitted := 0
	ids := make([]pool.ID, callers)
	for i := range ids {
		ids[i] = h.newID()
	}
	for _, id := range ids {
		all.Go(func() {
			<-start
			bookings, err := h.Admit(t.Context(), id, lease, []pool.Charge{rpm, of(5*cent, spend)})
			if err != nil {
				return
			}
			mu.Lock()
			admitted++
			mu.Unlock()
			// Each comes to what was reserved, so that nobody else fits afterwards.
			if err := h.Settle(t.Context(), id, []pool.Actual{{Booking: bookings[1], Came: 5 * cent}}); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	if admitted != 20 {
		t.Errorf("%d calls of 5 cents were admitted under one dollar, want 20", admitted)
	}
	h.wantUse(spend, 100*cent, 0)
	h.wantRemaining(rpm, 10)
}

// testConcurrentEnds lets everything happen at once: admissions, renewals, settles, voids, debits and reads. Each caller
// tries until it was served.
func testConcurrentEnds(t *testing.T, opener Opener) {
	const callers, rounds, most = 16, 40, 10
	h := opener.open(t)
	day, inFlight := within("day", 1<<40, pool.Day), within("in-flight", most, pool.Month)
	ids := make([][rounds]pool.ID, callers)
	for i := range ids {
		for j := range rounds {
			ids[i][j] = h.newID()
		}
	}
	deadline := time.Now().Add(time.Minute)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for round := range rounds {
				id := ids[caller][round]
				bookings, err := h.Admit(t.Context(), id, lease, []pool.Charge{of(100, day), of(3, inFlight)})
				for ; err != nil; bookings, err = h.Admit(t.Context(), id, lease, []pool.Charge{of(100, day), of(3, inFlight)}) {
					if time.Now().After(deadline) {
						t.Errorf("nothing fits any more: %v", err)
						return
					}
				}
				if s, err := h.Read(t.Context(), []pool.Charge{inFlight}); err != nil || s[0].Reserved > most || s[0].Reserved < 3 {
					t.Errorf("%+v in flight, want from 3 to %d: %v", s, most, err)
				}
				if err := h.Renew(t.Context(), []pool.Renewal{{ID: id, Bookings: bookings}}, lease); err != nil {
					t.Error(err)
				}
				if err := h.Debit(t.Context(), id+"-debit", []pool.Charge{of(1, day)}); err != nil {
					t.Error(err)
				}
				if round%2 == 0 {
					err = h.Settle(t.Context(), id, pool.Void(bookings))
				} else {
					err = h.Settle(t.Context(), id, []pool.Actual{{Booking: bookings[0], Came: 10}, {Booking: bookings[1]}})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	h.wantUse(day, callers*rounds+callers*rounds/2*10, 0)
	h.wantUse(inFlight, 0, 0)
}
