package redis

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// TestWindowsOfWrongGuesses asks at the very edges: a window has its first microsecond, and not its end.
func TestWindowsOfWrongGuesses(t *testing.T) {
	now := time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC)
	clock := pooltest.NewClock(now)
	c := open(t, Options{Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now})
	for name, write := range map[string]func(r *request, start, end int64) answer{
		"admit": func(r *request, start, end int64) answer {
			r.numbers(pool.WindowMemory.Microseconds())
			r.word("a")
			r.numbers(1)
			r.window("key", start)
			r.word(wordWindow)
			r.numbers(start, end, 100, 1)
			return <-c.ask(t.Context(), c.scripts.admit, r)
		},
		"debit": func(r *request, start, end int64) answer {
			r.numbers(pool.WindowMemory.Microseconds())
			r.word("a")
			r.numbers(1)
			r.done("a")
			r.window("key", start)
			r.word(wordWindow)
			r.numbers(start, end, 0, 1)
			return <-c.ask(t.Context(), c.scripts.settle, r)
		},
		"read": func(r *request, start, end int64) answer {
			r.window("key", start)
			r.word(wordWindow)
			r.numbers(start, end)
			return <-c.ask(t.Context(), c.scripts.read, r)
		},
	} {
		for _, test := range []struct{ from, to, outcome int64 }{
			{0, 1, outcomeDone},
			{-1, 1, outcomeDone},
			{-2, 0, outcomeElsewhen},
			{1, 2, outcomeElsewhen},
		} {
			r := c.requests.get(c.keys)
			r.begin()
			c.clock.write(r, now.UnixMicro())
			got := write(r, now.UnixMicro()+test.from, now.UnixMicro()+test.to)
			if got.err != nil || got.reply.outcome != test.outcome || got.reply.now != now.UnixMicro() {
				t.Errorf("%s in the window %+v: %+v", name, test, got)
			}
		}
	}
}

// TestWindowsTooShort has windows that are over before any question arrives.
func TestWindowsTooShort(t *testing.T) {
	charge := pool.Charge{Key: "a", Amount: 1, Window: pool.Window{Limit: 1, Span: pool.Span(time.Microsecond)}}
	_, err := fresh(t).Meter().Admit(t.Context(), "a", time.Minute, []pool.Charge{charge})
	if !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("%v, want that nothing is known", err)
	}
}

func TestRenewsMoreThanOneScriptDoes(t *testing.T) {
	const attempts = 2*renewAtOnce + 1
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	c := open(t, Options{Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now})
	h := &holder{T: t, Meter: c.Meter()}
	var renewals []pool.Renewal
	for range attempts {
		id, bookings := h.admit(time.Minute, requests(), spend(1))
		renewals = append(renewals, pool.Renewal{ID: id, Bookings: bookings})
	}
	clock.Advance(time.Minute - time.Second)
	if err := h.Renew(t.Context(), renewals, time.Minute); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute - time.Second)
	standings, err := h.Read(t.Context(), []pool.Charge{spend(0)})
	if err != nil || standings[0].Reserved != attempts {
		t.Errorf("%+v, %v; want %d reserved", standings, err, attempts)
	}
}

// TestMemoryEnds asks at the instant from which on an id counts as new.
func TestMemoryEnds(t *testing.T) {
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	c := open(t, Options{Addr: pooltest.Redis(t), KeyPrefix: pooltest.Prefix(t), Timeout: patience, Now: clock.Now})
	h := &holder{T: t, Meter: c.Meter()}
	_, bookings := h.admit(time.Minute, spend(1))
	for memory, book := range map[time.Duration]func(){
		pool.SettleMemory: func() { h.settle("settled", bookings, 7) },
		pool.DebitMemory: func() {
			if err := h.Debit(t.Context(), "debited", []pool.Charge{spend(7)}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		before := settled(t, h, spend(0))
		for _, step := range []struct {
			wait time.Duration
			want int64
		}{{0, 7}, {memory - time.Microsecond, 7}, {time.Microsecond, 14}, {0, 14}} {
			clock.Advance(step.wait)
			book()
			if got := settled(t, h, spend(0)) - before; got != step.want {
				t.Errorf("%v in %v: %d are settled, want %d", step.wait, memory, got, step.want)
			}
		}
	}
}

// TestTimeIsWrittenOut compares the two forms of the time, of which one is put together from Redis' words.
func TestTimeIsWrittenOut(t *testing.T) {
	c := fresh(t)
	client, err := c.connected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script := rueidis.NewLuaScript(clockLua + `return {now_word, word(now)}`)
	for range 500 { // every tenth has a second's fraction that begins with a zero
		forms, err := script.Exec(t.Context(), client, nil, []string{""}).AsStrSlice()
		if err != nil || forms[0] != forms[1] {
			t.Fatal(forms, err)
		}
	}
}

// TestManyLeasesEnd has more leases over at once than a script looks at, on several windows.
func TestManyLeasesEnd(t *testing.T) {
	const calls, windows = 1100, 3
	server := pooltest.StartRedis(t)
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	h := &holder{T: t, Meter: open(t, Options{Addr: server.Addr, Timeout: patience, Now: clock.Now}).Meter()}
	var charges []pool.Charge
	for n := range windows {
		charges = append(charges, pool.Charge{
			Key: strconv.Itoa(n), Amount: 1, Window: pool.Window{Limit: calls, Span: pool.Day},
		})
	}
	asked := func(what string, most int) {
		t.Helper()
		stats := tell(t, server.Addr, "INFO", "commandstats")
		found := evalsha.FindStringSubmatch(stats)
		if found == nil {
			t.Fatal(stats)
		}
		if calls, _ := strconv.Atoi(found[1]); calls < most {
			t.Errorf("%s took %d scripts, want at least %d", what, calls, most)
		}
	}
	for _, look := range []struct {
		name string
		at   func()
	}{
		{"a reading", func() {
			standings, err := h.Read(t.Context(), charges)
			for _, s := range standings {
				if err != nil || s.Reserved != 1 {
					t.Fatalf("%+v, %v; want 1 reserved", s, err)
				}
			}
		}},
		{"an admission", func() {
			full := slices.Clone(charges)
			for i := range full {
				full[i].Amount = calls - 1
			}
			if id, bookings := h.admit(time.Minute, full...); bookings[0].Reserved != calls {
				t.Errorf("%+v, want %d reserved", bookings, calls)
			} else {
				h.settle(id, bookings, 0)
			}
		}},
		{"a refused admission", func() {
			full := slices.Clone(charges)
			full[windows-1].Amount = calls
			_, err := h.Admit(t.Context(), "refused", time.Minute, full)
			var refusal *pool.Refusal
			if !errors.As(err, &refusal) || len(refusal.Refused) != 1 || refusal.Refused[0].Reserved != 1 {
				t.Errorf("%v, want a refusal by the last", err)
			}
		}},
	} {
		for range calls - 1 {
			h.admit(time.Minute, charges...)
		}
		clock.Advance(time.Minute - time.Microsecond)
		id, bookings := h.admit(time.Hour, charges...)
		clock.Advance(time.Microsecond)
		tell(t, server.Addr, "CONFIG", "RESETSTAT")
		look.at()
		asked(look.name, windows*calls/500)
		h.settle(id, bookings, 0)
	}
}

// A reading makes headway in every window that it looks at, also where the first leaves little to do in the second.
func TestReadingReapsEveryWindow(t *testing.T) {
	server := pooltest.StartRedis(t)
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	h := &holder{T: t, Meter: open(t, Options{Addr: server.Addr, Timeout: patience, Now: clock.Now}).Meter()}
	few := pool.Charge{Key: "few", Amount: 1, Window: pool.Window{Limit: 1 << 40, Span: pool.Day}}
	many := pool.Charge{Key: "many", Amount: 1, Window: pool.Window{Limit: 1 << 40, Span: pool.Day}}
	for range 498 {
		h.admit(time.Minute, few, many)
	}
	for range 600 {
		h.admit(time.Minute, many)
	}
	h.admit(time.Hour, few, many) // one that lives on
	clock.Advance(time.Minute)
	tell(t, server.Addr, "CONFIG", "RESETSTAT")
	standings, err := h.Read(t.Context(), []pool.Charge{few, many})
	if err != nil || standings[0].Reserved != 1 || standings[1].Reserved != 1 {
		t.Fatalf("%+v, %v; want 1 reserved of each", standings, err)
	}
	found := evalsha.FindStringSubmatch(tell(t, server.Addr, "INFO", "commandstats"))
	if found == nil {
		t.Fatal("no script was called")
	}
	if scripts, _ := strconv.Atoi(found[1]); scripts > 10 {
		t.Errorf("a reading took %d scripts", scripts)
	}
}
