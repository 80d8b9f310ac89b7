package redis

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// lives are all keys of a server with how long they live, in milliseconds: -1 is for ever.
func lives(t *testing.T, address string) map[string]int64 {
	t.Helper()
	all, err := pooltest.Command(address, "EVAL",
		`local lives = {} for _, key in ipairs(redis.call('KEYS', '*')) do
			lives[#lives + 1] = key lives[#lives + 1] = tostring(redis.call('PTTL', key)) end return lives`, "0")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for words := strings.Fields(all); len(words) > 0; words = words[2:] {
		if found[words[0]], err = strconv.ParseInt(words[1], 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// holder does what makes, changes and drops keys.
type holder struct {
	*testing.T
	pool.Meter
	ids int
}

func (h *holder) admit(ttl time.Duration, charges ...pool.Charge) (pool.ID, []pool.Booking) {
	h.Helper()
	h.ids++
	id := pool.ID("attempt-" + strconv.Itoa(h.ids))
	bookings, err := h.Admit(h.Context(), id, ttl, charges)
	if err != nil {
		h.Fatal(err)
	}
	return id, bookings
}

func (h *holder) settle(id pool.ID, bookings []pool.Booking, came int64) {
	h.Helper()
	var actuals []pool.Actual
	for _, b := range bookings {
		actuals = append(actuals, pool.Actual{Booking: b, Came: came})
	}
	if err := h.Settle(h.Context(), id, actuals); err != nil {
		h.Fatal(err)
	}
}

func TestEveryKeyHasALife(t *testing.T) {
	server := pooltest.StartRedis(t)
	h := &holder{T: t, Meter: open(t, Options{Addr: server.Addr, Timeout: patience}).Meter()}
	for round := range 3 { // the later ones find what is there
		for _, span := range []pool.Span{pool.Span(time.Hour), pool.Day, pool.Month} {
			charge := pool.Charge{Amount: 10, Window: pool.Window{Limit: 100, Span: span}}
			charge.Key = pool.Key("settled", strconv.Itoa(int(span)))
			id, bookings := h.admit(time.Minute, charge, requests())
			h.settle(id, bookings, 5)
			h.settle(id, bookings, 5)
			charge.Key = pool.Key("void", strconv.Itoa(int(span)))
			id, bookings = h.admit(time.Minute, charge)
			h.settle(id, bookings, 0)
			charge.Key = pool.Key("live", strconv.Itoa(int(span)))
			id, bookings = h.admit(time.Minute, charge)
			if err := h.Renew(t.Context(), []pool.Renewal{{ID: id, Bookings: bookings}}, time.Hour); err != nil {
				t.Fatal(err)
			}
			charge.Key = pool.Key("debit", strconv.Itoa(int(span)))
			if err := h.Debit(t.Context(), pool.ID(charge.Key+strconv.Itoa(round)), []pool.Charge{charge, requests()}); err != nil {
				t.Fatal(err)
			}
			charge.Key = pool.Key("lapsed", strconv.Itoa(int(span)))
			id, bookings = h.admit(time.Microsecond, charge)
			h.admit(time.Microsecond, charge) // finds that the lease is over
			h.settle(id, bookings, 5)
			// A settlement alone, as after Redis has lost everything.
			charge.Key = pool.Key("alone", strconv.Itoa(int(span)))
			bookings[0].Charge = charge
			h.settle(pool.ID(charge.Key), bookings, 5)
		}
	}
	found := lives(t, server.Addr)
	if len(found) < 30 {
		t.Errorf("only %d keys: %v", len(found), found)
	}
	most := map[string]time.Duration{":r:": 2 * time.Minute, ":w:": 32 * 24 * time.Hour, ":l:": 32 * 24 * time.Hour, ":d:": pool.DebitMemory}
	for key, life := range found {
		if !strings.HasPrefix(key, "{ktms}:") {
			t.Errorf("%s is not where all keys are", key)
		}
		if limit := most[key[len("{ktms}"):][:3]].Milliseconds(); life < 0 || life > limit+1 {
			t.Errorf("%s lives for %d ms, want some life of up to %d", key, life, limit)
		}
	}
}

func TestRefusedCallsExtendNothing(t *testing.T) {
	server := pooltest.StartRedis(t)
	client := open(t, Options{Addr: server.Addr, Timeout: patience})
	h := &holder{T: t, Meter: client.Meter()}
	full := pool.Charge{Key: "full", Amount: 10, Window: pool.Window{Limit: 10, Span: pool.Month}}
	rate := pool.Charge{Key: "rate", Amount: 1, Rate: pool.Rate{Limit: 1, Per: time.Hour}}
	roomy := spend(1)
	id, bookings := h.admit(time.Hour, full, rate)
	h.settle(id, bookings[:1], 10)
	shorten := func() {
		for key := range lives(t, server.Addr) {
			if _, err := pooltest.Command(server.Addr, "PEXPIRE", key, "3000000"); err != nil {
				t.Fatal(err)
			}
		}
	}
	shorten()
	before := lives(t, server.Addr)
	for n := range 5 {
		_, err := h.Admit(t.Context(), pool.ID("refused-"+strconv.Itoa(n)), time.Hour, []pool.Charge{roomy, full, rate})
		var refusal *pool.Refusal
		if !errors.As(err, &refusal) || len(refusal.Refused) != 2 {
			t.Fatalf("%v, want a refusal by two", err)
		}
	}
	after := lives(t, server.Addr)
	if len(after) != len(before) {
		t.Errorf("keys %v became %v", before, after)
	}
	for key, life := range after {
		if life > before[key] {
			t.Errorf("%s lived for %d ms and lives for %d after a refusal", key, before[key], life)
		}
	}
}

// TestRatesLiveLongEnough holds that a rate is not forgotten while something has to drain, on Redis' own clock.
func TestRatesLiveLongEnough(t *testing.T) {
	server := pooltest.StartRedis(t)
	h := &holder{T: t, Meter: open(t, Options{Addr: server.Addr, Timeout: patience}).Meter()}
	rate := pool.Charge{Key: "rate", Amount: 10, Rate: pool.Rate{Limit: 1, Per: time.Hour, Burst: 9}}
	lives := func(what string, want time.Duration) {
		t.Helper()
		// A minute less, which Redis' clock may have gone on by meanwhile.
		if life := time.Duration(lives(t, server.Addr)["{ktms}:r:rate"]) * time.Millisecond; life < want-time.Minute {
			t.Errorf("%s it lives for %v, want %v", what, life, want)
		}
	}
	id, bookings := h.admit(time.Minute, rate)
	lives("after an admission", bookings[0].Reset)
	h.settle(id, bookings, 20)
	lives("after a settlement", 20*time.Hour)
	if err := h.Debit(t.Context(), "batch", []pool.Charge{rate}); err != nil {
		t.Fatal(err)
	}
	lives("after a debit", 30*time.Hour)
	rate.Rate = pool.Rate{Limit: 3, Per: time.Hour, Burst: 89}
	_, bookings = h.admit(time.Minute, rate)
	lives("under a higher limit", bookings[0].Reset)
	rate.Rate.Limit = 1
	if _, err := h.Admit(t.Context(), "refused", time.Minute, []pool.Charge{rate, {Key: "none", Window: pool.Window{Span: pool.Day}}}); err == nil {
		t.Fatal("nothing was refused")
	}
	lives("under a lower limit", 39*time.Hour) // though nothing was booked
}

// TestSettledTooLate holds that what is settled when its window is forgotten leaves nothing that stays for ever.
func TestSettledTooLate(t *testing.T) {
	server := pooltest.StartRedis(t)
	clock := pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC))
	h := &holder{T: t, Meter: open(t, Options{Addr: server.Addr, Timeout: patience, Now: clock.Now}).Meter()}
	charge := pool.Charge{Key: "short", Amount: 10, Window: pool.Window{Limit: 100, Span: pool.Span(5 * time.Second)}}
	id, bookings := h.admit(time.Minute, charge)
	if _, err := pooltest.Command(server.Addr, "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	clock.Set(bookings[0].Start.Add(5*time.Second + pool.WindowMemory))
	h.settle(id, bookings, 7)
	for key := range lives(t, server.Addr) {
		if !strings.Contains(key, ":d:") {
			t.Errorf("%s was made for a window that is forgotten", key)
		}
	}
	clock.Advance(-time.Microsecond)
	h.settle("just-in-time", bookings, 7)
	found := lives(t, server.Addr)
	if life, ok := found["{ktms}:w:short:"+strconv.FormatInt(bookings[0].Start.UnixMicro(), 10)]; !ok || life < 0 {
		t.Errorf("a settlement in time left %v", found)
	}
}

func TestPasswordDatabaseAndPrefix(t *testing.T) {
	const password = "correct-horse"
	server := pooltest.StartRedis(t, "--requirepass", password)
	ask := func(m pool.Meter, want int64) {
		t.Helper()
		if got := settled(t, m, spend(0)); got != want {
			t.Errorf("%d are settled, want %d", got, want)
		}
	}
	with := func(options Options) pool.Meter {
		options.Timeout = patience
		return open(t, options).Meter()
	}
	plain := with(Options{Addr: server.Addr, Password: password})
	if err := plain.Debit(t.Context(), "a", []pool.Charge{spend(5)}); err != nil {
		t.Fatal(err)
	}
	ask(plain, 5)
	ask(with(Options{Addr: "redis://:" + password + "@" + server.Addr}), 5)
	ask(with(Options{Addr: "redis://default:" + password + "@" + server.Addr + "/0"}), 5)
	ask(with(Options{Addr: server.Addr, Password: password, DB: 3}), 0)
	ask(with(Options{Addr: "redis://:" + password + "@" + server.Addr + "/3"}), 0)
	ask(with(Options{Addr: server.Addr, Password: password, KeyPrefix: "other:"}), 0)

	for name, options := range map[string]Options{
		"none":  {Addr: server.Addr},
		"wrong": {Addr: server.Addr, Password: "hunter2"},
		"url":   {Addr: "redis://:hunter2@" + server.Addr},
	} {
		t.Run(name, func(t *testing.T) {
			var log logged
			options.Log, options.Timeout = slog.New(slog.NewTextHandler(&log, nil)), patience
			meter := open(t, options).Meter()
			for range restAfter {
				_, err := meter.Read(t.Context(), []pool.Charge{spend(0)})
				if !errors.Is(err, pool.ErrUnavailable) {
					t.Fatalf("%v, want that Redis is unavailable", err)
				}
				if !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
					t.Errorf("%v does not say what to mend", err)
				}
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%v tells the password", err)
				}
			}
			if strings.Contains(log.String(), "hunter2") || !strings.Contains(log.String(), "does not answer") {
				t.Error(log.String())
			}
		})
	}
}
