package memory

import (
	"math"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/gcra"
)

// sweepFrom is how many counters are kept before any is looked for that may go.
const sweepFrom = 1024

// counters holds every rate and window. Those that are over or drained go by themselves.
type counters struct {
	rates   map[string]gcra.Level
	windows map[windowName]*window
	// sweepAt is how many counters there may be before the next sweep.
	sweepAt int
}

// windowName identifies a window by its key and its start in microseconds.
type windowName struct {
	key   string
	start int64
}

func newCounters() counters {
	return counters{rates: map[string]gcra.Level{}, windows: map[windowName]*window{}, sweepAt: sweepFrom}
}

// check tells whether a charge fits, and books nothing.
func (k *counters) check(c pool.Charge, now int64) (r pool.Refused, fits bool) {
	if c.IsRate() {
		rate := rateOf(c)
		level, cost := k.level(c.Key, rate, now), rate.Cost(c.Amount)
		if k.rates[c.Key].Stale(rate, now) {
			k.setLevel(c.Key, level)
		}
		if level.Fits(rate, cost) {
			return pool.Refused{}, true
		}
		wait, never := level.Wait(rate, cost)
		return pool.Refused{Charge: c, Standing: rateStanding(rate, level), RetryAfter: wait, Never: never}, false
	}
	name, _ := locate(c, now)
	var settled, reserved int64
	if w := k.windows[name]; w != nil {
		w.expire(now)
		settled, reserved = w.settled, w.reserved
	}
	if c.Window.Fits(settled+reserved, c.Amount) {
		return pool.Refused{}, true
	}
	standing := c.Window.Standing(settled, reserved, time.UnixMicro(now))
	return pool.Refused{Charge: c, Standing: standing, RetryAfter: standing.Reset, Never: c.Window.Never(c.Amount)}, false
}

// book books a charge that fits. On a window that is a lease.
func (k *counters) book(c pool.Charge, id pool.ID, now, ends int64) pool.Booking {
	if c.IsRate() {
		rate := rateOf(c)
		level, cost := k.level(c.Key, rate, now), rate.Cost(c.Amount)
		if cost > 0 {
			level = level.Add(cost)
			k.setLevel(c.Key, level)
		}
		return pool.Booking{Charge: c, Standing: rateStanding(rate, level), DrainedAt: time.UnixMicro(level.Drained()).UTC()}
	}
	name, end := locate(c, now)
	var settled, reserved int64
	if c.Amount > 0 {
		w := k.window(name, end)
		w.take(leaseName{id, c.Amount}, ends)
		settled, reserved = w.settled, w.reserved
	} else if w := k.windows[name]; w != nil {
		settled, reserved = w.settled, w.reserved
	}
	return pool.Booking{Charge: c, Standing: c.Window.Standing(settled, reserved, time.UnixMicro(now))}
}

// renew lets the lease of a booking go on.
func (k *counters) renew(b pool.Booking, id pool.ID, now, ends int64) {
	if b.IsRate() {
		return
	}
	if w := k.windows[windowName{b.Key, b.Start.UnixMicro()}]; w != nil {
		w.renew(leaseName{id, b.Amount}, now, ends)
	}
}

// settle replaces what was booked by what it came to.
func (k *counters) settle(a pool.Actual, id pool.ID, now int64) {
	if a.IsRate() {
		rate := rateOf(a.Charge)
		k.correct(a.Key, rate, rate.Correction(a.Amount, a.Came), a.DrainedAt.UnixMicro(), now)
		return
	}
	_, end := a.Window.Span.At(a.Start)
	if now >= keptUntil(end.UnixMicro()) {
		return
	}
	w := k.window(windowName{a.Key, a.Start.UnixMicro()}, end.UnixMicro())
	w.release(leaseName{id, a.Amount})
	w.add(a.Came)
}

// debit books a charge whether or not it fits.
func (k *counters) debit(c pool.Charge, now int64) {
	if c.IsRate() {
		rate := rateOf(c)
		k.correct(c.Key, rate, rate.Correction(0, c.Amount), 0, now)
		return
	}
	name, end := locate(c, now)
	k.window(name, end).add(c.Amount)
}

// read tells where a counter stands, and changes nothing.
func (k *counters) read(c pool.Charge, now int64) pool.Standing {
	if c.IsRate() {
		rate := rateOf(c)
		return rateStanding(rate, k.level(c.Key, rate, now))
	}
	name, _ := locate(c, now)
	if w := k.windows[name]; w != nil {
		return c.Window.Standing(w.settled, w.live(now), time.UnixMicro(now))
	}
	return c.Window.Standing(0, 0, time.UnixMicro(now))
}

func (k *counters) level(key string, r gcra.Rate, now int64) gcra.Level {
	return k.rates[key].Now(r, now)
}

// correct changes a rate's backlog, unless the change is none.
func (k *counters) correct(key string, r gcra.Rate, change, drained, now int64) {
	if change != 0 {
		k.setLevel(key, k.rates[key].Correct(r, change, drained, now))
	}
}

func (k *counters) setLevel(key string, level gcra.Level) {
	if level.Backlog == 0 {
		delete(k.rates, key)
		return
	}
	k.rates[key] = level
}

// window finds a window or begins it.
func (k *counters) window(name windowName, end int64) *window {
	w := k.windows[name]
	if w == nil {
		w = &window{end: end, soonest: math.MaxInt64}
		k.windows[name] = w
	}
	return w
}

// sweep forgets what is drained or over. It looks only when there are twice as many counters as the last sweep left, so
// that each booking pays for a few counters at most.
func (k *counters) sweep(now int64) {
	if len(k.rates)+len(k.windows) < k.sweepAt {
		return
	}
	for key, level := range k.rates {
		if level.Drained() <= now {
			delete(k.rates, key)
		}
	}
	for name, w := range k.windows {
		if keptUntil(w.end) <= now {
			delete(k.windows, name)
			continue
		}
		w.expire(now)
	}
	k.sweepAt = max(2*(len(k.rates)+len(k.windows)), sweepFrom)
}

// locate finds the window that a charge falls into now, and when it is over, in microseconds.
func locate(c pool.Charge, now int64) (name windowName, end int64) {
	from, to := c.Window.Span.At(time.UnixMicro(now))
	return windowName{c.Key, from.UnixMicro()}, to.UnixMicro()
}

func rateStanding(r gcra.Rate, level gcra.Level) pool.Standing {
	return pool.Standing{Remaining: level.Remaining(r), Reset: level.Reset(r)}
}
