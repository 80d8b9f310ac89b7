package gcra

import (
	"math"
	"testing"
	"time"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
)

// at is a level under a rate's limit with units waiting at an instant.
func at(r Rate, now, units int64) Level { return Level{}.Now(r, now).Add(r.Correction(0, units)) }

func TestLeft(t *testing.T) {
	t.Parallel()
	rate := Of(60, 59, time.Minute)
	for _, c := range []struct{ drained, now, want int64 }{
		{100 * second, 99 * second, minute},
		{100 * second, 40 * second, 60 * minute},
		{100 * second, 100*second - 1, 60},
		{100 * second, 100 * second, 0},
		{100 * second, 500 * second, 0},
		{-62_135_596_800_000_000, minute, 0}, // the zero time
		{1 << 61, 0, maxBacklog},
	} {
		if got := rate.Left(c.drained, c.now); got != c.want {
			t.Errorf("at %d of what drains by %d %d are left, want %d", c.now, c.drained, got, c.want)
		}
	}
	for _, limit := range []int64{1, 7, 1 << 40, math.MaxInt64} {
		enormous := Of(limit, limit, time.Minute)
		for _, time := range []int64{1, minute, 1 << 40, math.MaxInt64} {
			if got := enormous.Left(time, 0); got <= 0 || got > maxBacklog {
				t.Errorf("%+v: %d are left for %d", enormous, got, time)
			}
		}
	}
}

func TestDrained(t *testing.T) {
	t.Parallel()
	rate := Of(7, 6, time.Minute)
	if got := at(rate, minute, 2).Drained(); got != minute+17_142_858 {
		t.Errorf("two of seven have drained after %d, want 17142858", got-minute)
	}
	if got := (Level{}).Now(rate, minute).Drained(); got != minute {
		t.Errorf("nothing has drained by %d, want %d", got, minute)
	}
}

// TestOtherLimit: what waits is cut to what the other limit admits at once, and drains by it.
func TestOtherLimit(t *testing.T) {
	t.Parallel()
	high, low := Of(6000, 5999, time.Minute), Of(10, 9, time.Minute)
	level := at(high, minute, 6000)
	if got := level.Now(low, minute); got.Backlog != 10*minute || got.Limit != 10 {
		t.Errorf("6000 become %+v, want 10", got)
	}
	if got := at(low, minute, 10).Now(high, minute+second/100); got.Backlog != 9*minute {
		t.Errorf("10 become %+v after 10ms at 6000, want 9", got)
	}
	owes := at(low, minute, 500)
	if got := owes.Now(low, minute+6*second); got.Backlog != 499*minute {
		t.Errorf("500 become %+v under the same limit, want 499", got)
	}
	if got := owes.Now(Of(10, 0, time.Minute), minute); got != owes {
		t.Errorf("500 become %+v with another burst, want as many", got)
	}
	for _, c := range []struct {
		level Level
		rate  Rate
		now   int64
		want  bool
	}{
		{level, high, minute, false},
		{level, high, minute + second, false},
		{level, high, minute - 1, true},
		{level, low, minute, true},
		{level, low, 1000 * minute, false}, // drained
		{Level{}, high, minute, false},
	} {
		if got := c.level.Stale(c.rate, c.now); got != c.want {
			t.Errorf("%+v is stale under %+v at %d: %t, want %t", c.level, c.rate, c.now, got, c.want)
		}
	}
}

func TestCorrect(t *testing.T) {
	t.Parallel()
	rate, low := Of(60, 59, time.Minute), Of(6, 59, time.Minute)
	const never = int64(1) << 60
	for _, c := range []struct {
		name           string
		level          Level
		rate           Rate
		booked, came   int64
		drained, now   int64
		backlog, limit int64
	}{
		{"more", at(rate, 0, 30), rate, 10, 15, 0, 0, 35 * minute, 60},
		{"less", at(rate, 0, 30), rate, 10, 5, 30 * second, 0, 25 * minute, 60},
		{"less, drained in part", at(rate, 0, 30), rate, 10, 0, 12 * second, 8 * second, 18 * minute, 60},
		{"less, drained", at(rate, 0, 30), rate, 10, 0, 10 * second, 10 * second, 20 * minute, 60},
		{"less than is there", at(rate, 0, 3), rate, 10, 0, never, 0, 0, 60},
		{"by an older limit", at(low, 0, 30), rate, 10, 20, 0, 10 * second, 39 * minute, 6},
		{"by an older limit, drained", at(low, 0, 1), rate, 10, 20, 0, 10 * second, 10 * minute, 60},
		{"of nothing", Level{}, rate, 10, 20, 0, minute, 10 * minute, 60},
	} {
		got := c.level.Correct(c.rate, c.rate.Correction(c.booked, c.came), c.drained, c.now)
		if want := (Level{At: c.now, Backlog: c.backlog, Limit: c.limit}); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}
