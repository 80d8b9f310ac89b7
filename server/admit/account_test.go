package admit

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors"
)

// limits are those of one test; caps are by "type/id/period", rates by "user/model".
type limits struct {
	caps  map[string]int64
	rates map[string]int32
	team  int64
}

func (l limits) SpendCap(subjectType, subjectID, period string) int64 {
	return l.caps[subjectType+"/"+subjectID+"/"+period]
}
func (l limits) UserRate(user, model string) (rpm, burst int32) { return l.rates[user+"/"+model], 0 }
func (l limits) TeamBudget(string) int64                        { return l.team }

// desk is a Controller on counters in memory, within a bubble of time.
type desk struct {
	*Controller
	t         *testing.T
	throttled map[status.Reason]int
	stop      func()
}

// inBubble runs a test at noon of a day in the middle of a month.
func inBubble(t *testing.T, options Options, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)))
		d := &desk{t: t, throttled: map[status.Reason]int{}}
		options.Meter = memory.New(memory.Options{})
		options.Log = slog.New(slog.DiscardHandler)
		options.Throttled = func(r status.Reason) { d.throttled[r]++ }
		if options.OutputReserve == 0 {
			options.OutputReserve = 4096
		}
		d.Controller = New(options)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); d.Run(ctx) }()
		d.stop = func() { cancel(); <-ended }
		defer d.stop()
		test(t, d)
	})
}

var someone = &caller.Caller{KeyID: "1", KeyName: "app"}

// call is a call of input tokens whose answers are bounded to output; 0 is no bound.
func (d *desk) call(id string, who *caller.Caller, l Limits, input, output int64) *Account {
	return d.Open(Call{ID: id, Caller: who, Limits: l, Input: func() int64 { return input }, MaxOutput: output,
		Output: func(vendors.Target) int64 { return output }})
}

func (d *desk) admit(a *Account, m *ktmsv1.ModelSpec) (*Ticket, *Refusal) {
	d.t.Helper()
	return a.Admit(d.t.Context(), m, vendors.Target{Vendor: m.GetVendor(), Model: m.GetId()})
}

// spent is what the day of a key stands at, once everything is booked.
func (d *desk) spent(l Limits) Window {
	d.t.Helper()
	synctest.Wait()
	windows, err := d.Spent(d.t.Context(), l, SubjectKey, "app", PeriodDay)
	if err != nil {
		d.t.Fatal(err)
	}
	return windows[0]
}

// model costs a dollar per million tokens of either kind, so that a token is 1000 nano-USD.
func model(id string) *ktmsv1.ModelSpec {
	return &ktmsv1.ModelSpec{Id: id, Vendor: vendors.OpenAI, PriceInPerMtok: 1, PriceOutPerMtok: 1}
}

func used(input, output int64) *ktmsv1.TokensUsage {
	return &ktmsv1.TokensUsage{Input: input, Output: output, CostNanousd: (input + output) * 1000}
}

func capped(nano int64) limits { return limits{caps: map[string]int64{"key/app/day": nano}} }

func TestAccount_TheWorstCaseIsReservedAndTheCostBooked(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		a := d.call("a", someone, l, 100, 300)
		ticket, _ := d.admit(a, model("m"))
		if w := d.spent(l); w.Reserved != 400_000 || w.Settled != 0 || w.Remaining != 600_000 {
			t.Errorf("reserved: %+v", w)
		}
		ticket.Settle(used(90, 20))
		ticket.Settle(used(1, 1)) // the first counts
		ticket.Void()
		a.Close()
		w := d.spent(l)
		if w.Reserved != 0 || w.Settled != 110_000 || w.Limit != 1_000_000 {
			t.Errorf("settled: %+v", w)
		}
		if want := time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC); !w.Resets.Equal(want) {
			t.Errorf("resets at %v, want %v", w.Resets, want)
		}
	})
}

func TestAccount_ACheaperModelMayStillBeTried(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		dear, free := model("dear"), &ktmsv1.ModelSpec{Id: "free", Vendor: vendors.Local}
		dear.PriceOutPerMtok = 10
		a := d.call("a", someone, l, 100, 100)
		_, refused := d.admit(a, dear) // 100 + 1000 thousand
		if refused == nil || refused.Reason != status.SpendKeyDaily || refused.Final {
			t.Fatalf("refused: %+v", refused)
		}
		ticket, refused := d.admit(a, model("cheap"))
		if refused != nil {
			t.Fatal(refused)
		}
		ticket.Settle(used(100, 1000)) // far more than it reserved
		a.Close()
		if w := d.spent(l); w.Settled != 1_100_000 || w.Remaining != 0 {
			t.Errorf("%+v", w)
		}
		b := d.call("b", someone, l, 0, 0)
		if _, refused := d.admit(b, model("cheap")); refused == nil {
			t.Error("a call was admitted when the money was spent")
		}
		if ticket, refused := d.admit(b, free); refused != nil || ticket != nil {
			t.Errorf("what costs nothing was held to a spend limit: %v %v", ticket, refused)
		}
		b.Close()
		if d.throttled[status.SpendKeyDaily] != 2 {
			t.Errorf("counted %v, want once for each call", d.throttled)
		}
	})
}

func TestAccount_WhatAFailedAttemptReservedIsFreeForTheNext(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		a := d.call("a", someone, l, 100, 800)
		ticket, _ := d.admit(a, model("m"))
		ticket.Settle(nil)
		ticket, refused := d.admit(a, model("n"))
		if refused != nil {
			t.Fatal(refused)
		}
		ticket.Settle(used(100, 100))
		a.Close()
		if w := d.spent(l); w.Settled != 200_000 || w.Reserved != 0 {
			t.Errorf("%+v", w)
		}
	})
}

func TestAccount_RatesOfTheCallCountOnceAndThoseOfTheModelOncePerModel(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		who := &caller.Caller{KeyName: "app", RPMLimit: 2}
		m, n := model("m"), model("n")
		m.Rpm, n.Rpm = 2, 1
		a := d.call("a", who, limits{}, 1, 1)
		for range 3 { // retries in place
			if ticket, refused := d.admit(a, m); refused != nil {
				t.Fatal(refused)
			} else {
				ticket.Settle(nil)
			}
		}
		if ticket, refused := d.admit(a, n); refused != nil {
			t.Fatal(refused)
		} else {
			ticket.Settle(used(1, 1))
		}
		a.Close()
		synctest.Wait()
		b := d.call("b", who, limits{}, 1, 1)
		_, refused := d.admit(b, n) // one a minute
		if refused == nil || refused.Reason != status.ThrottledRPM || refused.Wait != time.Minute || refused.Final {
			t.Errorf("the model's rate: %+v", refused)
		}
		if _, refused = d.admit(b, m); refused != nil {
			t.Errorf("the second call of two a minute: %v", refused)
		}
		b.Close()
		c := d.call("c", who, limits{}, 1, 1)
		_, refused = d.admit(c, model("free"))
		if refused == nil || refused.Reason != status.ThrottledKeyRPM || !refused.Final || refused.Wait != 30*time.Second {
			t.Errorf("the key's rate: %+v", refused)
		}
		c.Close()
	})
}

func TestTicket_VoidGivesTheModelsRateBack(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		m := model("m")
		m.Rpm = 1
		a := d.call("a", someone, limits{}, 1, 1)
		ticket, _ := d.admit(a, m)
		ticket.Void()
		if _, refused := d.admit(a, m); refused != nil {
			t.Errorf("after a void: %v", refused)
		}
		a.Close()
		synctest.Wait()
		b := d.call("b", someone, limits{}, 1, 1)
		if _, refused := d.admit(b, m); refused == nil {
			t.Error("the second try did not count")
		}
		b.Close()
	})
}

func TestAccount_TokensPerMinuteArePaidForByTheNextCalls(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		who := &caller.Caller{KeyName: "app", TPMLimit: 600}
		a := d.call("a", who, limits{}, 100, 0)
		ticket, refused := d.admit(a, model("m"))
		if refused != nil {
			t.Fatal(refused)
		}
		ticket.Settle(used(100, 50)) // a fallback
		ticket, _ = d.admit(a, model("n"))
		ticket.Settle(used(100, 650))
		a.Close() // 900 in all, 300 too many
		synctest.Wait()
		b := d.call("b", who, limits{}, 100, 0)
		_, refused = d.admit(b, model("m"))
		if refused == nil || refused.Reason != status.ThrottledKeyTPM || refused.Wait != 40*time.Second || !refused.Final {
			t.Errorf("%+v, want a wait for 400 tokens at 10 a second", refused)
		}
		b.Close()
		time.Sleep(40 * time.Second)
		c := d.call("c", who, limits{}, 100, 0)
		if _, refused := d.admit(c, model("m")); refused != nil {
			t.Errorf("after the wait: %v", refused)
		}
		c.Close()
		e := d.call("e", who, limits{}, 601, 0)
		_, refused = d.admit(e, model("m"))
		if refused == nil || refused.Reason != status.RequestTooLarge || !refused.Final || refused.Wait != 0 {
			t.Errorf("more than a minute: %+v", refused)
		}
		e.Close()
	})
}

func TestAccount_BudgetsAndTheirGrace(t *testing.T) {
	inBubble(t, Options{Grace: 0.05}, func(t *testing.T, d *desk) {
		m := model("m")
		m.DailyTokensPerKey = 1000
		for i, tokens := range []int64{500, 500, 50} {
			a := d.call(string(rune('a'+i)), someone, limits{}, tokens/2, tokens/2)
			ticket, refused := d.admit(a, m)
			if refused != nil {
				t.Fatalf("call %d: %v", i, refused)
			}
			ticket.Settle(used(tokens/2, tokens/2))
			a.Close()
			synctest.Wait()
		}
		z := d.call("z", someone, limits{}, 1, 0)
		_, refused := d.admit(z, m)
		if refused == nil || refused.Reason != status.BudgetKey || refused.Wait != 12*time.Hour {
			t.Errorf("beyond the grace: %+v", refused)
		}
		z.Close()
	})
}

func TestAccount_AnUnboundedAnswerReservesTheDefault(t *testing.T) {
	inBubble(t, Options{OutputReserve: 1000}, func(t *testing.T, d *desk) {
		l := capped(10_000_000)
		a := d.call("a", someone, l, 10, 0)
		_, _ = d.admit(a, model("m"))
		if w := d.spent(l); w.Reserved != 1_010_000 {
			t.Errorf("%+v", w)
		}
		a.Close()
		if w := d.spent(l); w.Reserved != 0 || w.Settled != 0 {
			t.Errorf("a call that ended without a word about its attempt: %+v", w)
		}
	})
}

func TestController_AReservationLivesAsLongAsItsCall(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		a := d.call("a", someone, l, 100, 300)
		ticket, _ := d.admit(a, model("m"))
		time.Sleep(5 * time.Minute)
		if w := d.spent(l); w.Reserved != 400_000 {
			t.Errorf("after five minutes: %+v", w)
		}
		ticket.Settle(used(100, 100))
		a.Close()
		if w := d.spent(l); w.Reserved != 0 || w.Settled != 200_000 {
			t.Errorf("settled: %+v", w)
		}
	})
}

func TestController_AReservationOutlivesItsReplicaByTheLease(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		d.stop() // nobody renews any more, as after kill -9
		_, _ = d.admit(d.call("a", someone, l, 100, 300), model("m"))
		time.Sleep(DefaultLease - time.Microsecond)
		if w := d.spent(l); w.Reserved != 400_000 {
			t.Errorf("within the lease: %+v", w)
		}
		time.Sleep(time.Microsecond)
		if w := d.spent(l); w.Reserved != 0 || w.Settled != 0 {
			t.Errorf("after the lease: %+v", w)
		}
	})
}

func TestController_RunEndsWithEverythingBooked(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := capped(1_000_000)
		a := d.call("a", someone, l, 100, 300)
		ticket, _ := d.admit(a, model("m"))
		go func() {
			time.Sleep(time.Second)
			ticket.Settle(used(100, 100))
			a.Close()
		}()
		d.stop()
		if w := d.spent(l); w.Settled != 200_000 || w.Reserved != 0 {
			t.Errorf("%+v", w)
		}
	})
}

func TestAccount_TheLimitThatTellsMostIsNamed(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		l := limits{
			caps: map[string]int64{"key/app/day": 1, "key/app/month": 1, "user/u/day": 1_000_000},
			team: 1,
		}
		a := d.Open(Call{ID: "a", Caller: &caller.Caller{KeyName: "app", TeamID: "t"}, UserID: "u", Limits: l,
			Input: func() int64 { return 100 }, Output: func(vendors.Target) int64 { return 100 }})
		_, refused := d.admit(a, model("m"))
		if refused == nil || refused.Reason != status.SpendKeyMonthly || refused.Wait != (14*24+12)*time.Hour {
			t.Errorf("%+v", refused)
		}
		for _, want := range []string{"the API key has spent 0.00 of its 0.000000001 USD of this month", "may cost up to 0.0002",
			"resets at 2026-12-01T00:00:00Z", "shorten it, or lower its max_tokens"} {
			if !strings.Contains(refused.Text, want) {
				t.Errorf("%q lacks %q", refused.Text, want)
			}
		}
		if strings.Contains(refused.Text, "app") {
			t.Errorf("the text names the key: %q", refused.Text)
		}
		a.Close()
	})
}

func TestAccount_AllowancesAreThoseOfTheTightestRate(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, d *desk) {
		m := model("m")
		m.Rpm = 10
		l := limits{rates: map[string]int32{"svc:app/m": 5}}
		a := d.call("a", &caller.Caller{KeyName: "app", RPMLimit: 60, TPMLimit: 6000}, l, 100, 0)
		_, _ = d.admit(a, m)
		want := []status.Allowance{
			{Unit: status.UnitRequests, Limit: 5, Remaining: 4, Reset: 12 * time.Second},
			{Unit: status.UnitTokens, Limit: 6000, Remaining: 5900, Reset: time.Second},
		}
		got := a.Allowances()
		if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%+v, want %+v", got, want)
		}
		a.Close()
	})
}

// A meter of nothing: a call without limits asks nobody.
func TestAccount_WithoutLimitsNobodyIsAsked(t *testing.T) {
	c := New(Options{Meter: nil, Log: slog.New(slog.DiscardHandler)})
	a := c.Open(Call{ID: "a", Caller: someone, Limits: limits{}, Input: func() int64 { t.Error("estimated"); return 0 }})
	ticket, err := a.Admit(t.Context(), model("m"), vendors.Target{})
	if ticket != nil || err != nil {
		t.Errorf("%v, %v", ticket, err)
	}
	ticket.Settle(used(1, 1))
	a.Close()
}

func TestName(t *testing.T) {
	long := strings.Repeat("x", 65)
	if name(long) == name(long+"y") || len(name(long)) > maxName {
		t.Errorf("%q", name(long))
	}
	if got := pool.Key("spend", "user", "day", name("a:b")); got == pool.Key("spend", "user", "day", "a", "b") {
		t.Errorf("two users share %q", got)
	}
}

func TestUSD(t *testing.T) {
	for nano, want := range map[int64]string{0: "0.00", 1: "0.000000001", 10_000_000: "0.01", 1_000_000_000: "1.00", 1_230_000_000: "1.23", 123_456_789_000: "123.456789"} {
		if got := USD(nano); got != want {
			t.Errorf("%d: %s, want %s", nano, got, want)
		}
	}
}
