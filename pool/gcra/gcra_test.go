package gcra

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// exact is a backlog in fractions of units, by the book: it has no bounds and rounds nothing.
type exact struct {
	limit, burst int64
	period       time.Duration
	at           int64
	backlog      *big.Rat
}

func (e *exact) drain(now int64) {
	elapsed := big.NewRat(max(now-e.at, 0), e.period.Microseconds())
	e.backlog.Sub(e.backlog, elapsed.Mul(elapsed, integer(e.limit)))
	e.at = now
	e.clamp()
}

func (e *exact) add(units int64) {
	e.backlog.Add(e.backlog, integer(units))
	e.clamp()
}

func (e *exact) clamp() {
	if e.backlog.Sign() < 0 {
		e.backlog = new(big.Rat)
	}
}

// over is by how much units do not fit; not positive when they do.
func (e *exact) over(units int64) *big.Rat {
	sum := new(big.Rat).Add(e.backlog, integer(max(units, 1)))
	return sum.Sub(sum, integer(e.burst+1))
}

// micros is how long units drain, rounded up.
func (e *exact) micros(units *big.Rat) int64 {
	t := new(big.Rat).Mul(units, big.NewRat(e.period.Microseconds(), e.limit))
	rest := new(big.Int)
	whole, _ := new(big.Int).QuoRem(t.Num(), t.Denom(), rest)
	if rest.Sign() > 0 {
		return whole.Int64() + 1
	}
	return whole.Int64()
}

func (e *exact) remaining() int64 {
	left := new(big.Rat).Sub(integer(e.burst+1), e.backlog)
	if left.Sign() <= 0 {
		return 0
	}
	return new(big.Int).Quo(left.Num(), left.Denom()).Int64()
}

func integer(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// TestExact compares every answer with the fractions, over random rates and random costs and corrections.
func TestExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		limits := []int64{1, 2, 7, 60, 1000, 999_983, 30_000_000}
		periods := []time.Duration{time.Second, time.Minute, time.Minute, time.Minute + time.Microsecond}
		e := &exact{limit: limits[random.IntN(len(limits))], period: periods[random.IntN(len(periods))], at: 1_777_000_000_000_000, backlog: new(big.Rat)}
		e.burst = []int64{0, 5, e.limit - 1, 3 * e.limit}[random.IntN(4)]
		e.burst = min(e.burst, 30_000_000)
		rate, level := Of(e.limit, e.burst, e.period), Level{}
		if rate.Scale != 1 {
			t.Fatalf("%d a %s is scaled by %d", e.limit, e.period, rate.Scale)
		}
		for range 200 {
			now := e.at + random.Int64N(1+2*rate.Period/max(rate.Limit, 1)) - random.Int64N(3)
			e.drain(now)
			level = level.Now(rate, now)
			compare(t, rate, level, e, random.Int64N(e.burst+3))
			if t.Failed() {
				t.Fatalf("seed %d: %+v, %+v", seed, rate, level)
			}
			units := random.Int64N(e.burst/2 + 2)
			switch {
			case random.IntN(3) == 0: // what was booked came to something else
				booked := random.Int64N(e.burst + 2)
				e.add(units - booked)
				level = level.Add(rate.Correction(booked, units))
			case e.over(units).Sign() <= 0:
				e.add(units)
				level = level.Add(rate.Cost(units))
			}
		}
	}
}

func compare(t *testing.T, rate Rate, level Level, e *exact, units int64) {
	t.Helper()
	cost := rate.Cost(units)
	if got, want := level.Fits(rate, cost), e.over(units).Sign() <= 0; got != want {
		t.Errorf("that %d fit is %t, want %t", units, got, want)
	}
	if got, want := level.Remaining(rate), e.remaining(); got != want {
		t.Errorf("%d remain, want %d", got, want)
	}
	if got, want := level.Reset(rate).Microseconds(), e.micros(e.backlog); got != want {
		t.Errorf("all are there in %dµs, want %d", got, want)
	}
	wait, never := level.Wait(rate, cost)
	if want := max(units, 1) > e.burst+1; never != want {
		t.Errorf("that %d never fit is %t, want %t", units, never, want)
	}
	if never {
		return
	}
	if want := max(e.micros(e.over(units)), 0); wait.Microseconds() != want {
		t.Errorf("%d fit in %s, want %dµs", units, wait, want)
	}
	edge := level.At + wait.Microseconds()
	if !level.Now(rate, edge).Fits(rate, cost) {
		t.Errorf("%d do not fit after the wait of %s", units, wait)
	}
	if wait > 0 && level.Now(rate, edge-1).Fits(rate, cost) {
		t.Errorf("%d fit already a microsecond before the wait of %s is over", units, wait)
	}
}

func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	rate := Of(60, 59, time.Minute) // one a second
	level := Level{}.Now(rate, 1_000_000_000).Add(rate.Cost(30))
	back := level.Now(rate, level.At-3_600_000_000)
	if back.Backlog != level.Backlog || back.Remaining(rate) != 30 {
		t.Errorf("an hour earlier it is %+v, want the same backlog as in %+v", back, level)
	}
	// It drains from there, and not an hour later.
	if left := back.Now(rate, back.At+10_000_000).Remaining(rate); left != 40 {
		t.Errorf("10s after that %d remain, want 40", left)
	}
	if same := level.Now(rate, level.At); same != level {
		t.Errorf("at the same instant it is %+v, want %+v", same, level)
	}
}

// TestEnormous uses numbers that do not fit: everything stays below 2^53 all the same, sums too, and close to what was
// asked for.
func TestEnormous(t *testing.T) {
	t.Parallel()
	const exactUpTo = 1 << 53
	amounts := []int64{0, 1, 59, 37_000_000, 40_000_000, 1 << 40, 1 << 53, math.MaxInt64 - 1, math.MaxInt64}
	periods := []time.Duration{time.Microsecond, time.Second, time.Minute, 24 * time.Hour, 365 * 24 * time.Hour}
	for _, limit := range amounts[1:] {
		for _, burst := range append(amounts, -1, math.MinInt64) {
			for _, period := range periods {
				rate := Of(limit, burst, period)
				if rate.Limit < 1 || rate.Capacity < 1 || rate.Scale < 1 || rate.Full() < rate.Period {
					t.Fatalf("%d a %s with %d more is %+v", limit, period, burst, rate)
				}
				// Rounded down by one in 71 a year at worst, and by one in 37 million a minute.
				if drains := float64(rate.Limit) * float64(rate.Scale); drains > float64(limit) || drains < float64(limit)*(1-1/float64(rate.Limit)) {
					t.Errorf("%d a %s is %+v, which drains %g", limit, period, rate, drains)
				}
				full := Level{At: 1, Backlog: maxBacklog}
				for _, units := range amounts {
					cost := rate.Cost(units)
					if cost < 0 || cost > rate.Full()+rate.Period || maxBacklog+cost >= exactUpTo {
						t.Errorf("%+v: %d cost %d", rate, units, cost)
					}
					if fits := (Level{}).Fits(rate, cost); fits && units > 0 && float64(units) > float64(rate.Capacity)*float64(rate.Scale) {
						t.Errorf("%+v: %d fit", rate, units)
					}
					for _, booked := range amounts {
						change := rate.Correction(booked, units)
						if got := full.Add(change).Backlog; got < 0 || got > maxBacklog {
							t.Errorf("%+v: correcting %d to %d makes a backlog of %d", rate, booked, units, got)
						}
						if got := (Level{}).Add(change).Backlog; got < 0 || got > maxBacklog {
							t.Errorf("%+v: correcting %d to %d makes a backlog of %d", rate, booked, units, got)
						}
					}
				}
				if got := (Level{}).Remaining(rate); got < rate.Capacity || got > max(satAdd(max(burst, 0), 1), rate.Scale) {
					t.Errorf("%+v: %d remain of all", rate, got)
				}
				if wait := full.Reset(rate); wait <= 0 {
					t.Errorf("%+v: the longest backlog drains in %s", rate, wait)
				}
				for _, now := range []int64{math.MaxInt64, 1 << 60, 0, -1} {
					if got := full.Now(rate, now).Backlog; got != 0 && now > 1<<59 || got < 0 {
						t.Errorf("%+v: at %d the backlog is %d", rate, now, got)
					}
				}
			}
		}
	}
}

// TestEnormousBurst: a burst beyond what is counted leaves the limit exact.
func TestEnormousBurst(t *testing.T) {
	t.Parallel()
	rate := Of(100, math.MaxInt32, time.Minute)
	level := Level{}.Now(rate, 1).Add(rate.Correction(0, math.MaxInt32))
	before := level.Backlog
	level = level.Now(rate, 1+time.Minute.Microseconds())
	if drained := before - level.Backlog; drained != rate.Cost(100) {
		t.Errorf("%d drained within a minute at %+v, want 100 units, which are %d", drained, rate, rate.Cost(100))
	}
	if rate.Cost(1) != rate.Period {
		t.Errorf("one costs %d at %+v", rate.Cost(1), rate)
	}
}
