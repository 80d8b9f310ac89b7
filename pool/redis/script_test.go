package redis

import (
	"errors"
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
			r.numbers(start, end, 100, 0, 1)
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
	charge := pool.Charge{Key: "a", Amount: 1, Window: pool.Window{Limit: 1, Span: pool.Every(time.Microsecond)}}
	_, err := fresh(t).Meter().Admit(t.Context(), "a", time.Minute, []pool.Charge{charge})
	if !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("%v, want that nothing is known", err)
	}
}

// TestLostKeys holds that a Redis that evicts keys leaves no sum negative and no reservation without a lease.
func TestLostKeys(t *testing.T) {
	server := pooltest.StartRedis(t)
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	c := open(t, Options{Addr: server.Addr, Timeout: patience, Now: clock.Now})
	h := &holder{T: t, Meter: c.Meter()}
	charge := pool.Charge{Key: "a", Amount: 60, Window: pool.Window{Limit: 100, Span: pool.Day}}
	lose := func(key []byte) {
		t.Helper()
		if answer := tell(t, server.Addr, "DEL", string(key)); answer != "1" {
			t.Fatalf("%s of the key %s", answer, key)
		}
	}
	want := func(settled, reserved int64) {
		t.Helper()
		standings, err := h.Read(t.Context(), []pool.Charge{charge})
		if err != nil || standings[0].Settled != settled || standings[0].Reserved != reserved {
			t.Fatalf("%+v, %v; want %d settled and %d reserved", standings, err, settled, reserved)
		}
	}

	_, bookings := h.admit(time.Minute, charge)
	start := bookings[0].Start.UnixMicro()
	lose(c.keys.leases(nil, charge.Key, start))
	clock.Advance(time.Minute)
	want(0, 0)
	id, bookings := h.admit(time.Minute, charge)
	want(0, 60)

	lose(c.keys.sums(nil, charge.Key, start))
	h.settle(id, bookings, 50)
	want(50, 0)
	charge.Amount = 50
	id, bookings = h.admit(time.Minute, charge)
	h.settle(id, bookings, 0)
	want(50, 0)
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
	script := rueidis.NewLuaScript(countersLua + `return {now_word, word(now)}`)
	for range 500 { // every tenth has a second's fraction that begins with a zero
		forms, err := script.Exec(t.Context(), client, nil, []string{""}).AsStrSlice()
		if err != nil || forms[0] != forms[1] {
			t.Fatal(forms, err)
		}
	}
}
