package memory

import (
	"math"

	"github.com/ai-process/ktms/pool"
)

// window is the use of one window. A window without leases has nothing reserved.
type window struct {
	// end is when the window is over, in microseconds.
	end      int64
	settled  int64
	reserved int64
	leases   map[pool.ID]lease
	// soonest is not later than any lease's end, so that leases are looked through only when one may be over.
	soonest int64
}

// lease is a reservation that ends by itself at an instant, in microseconds; then it is over.
type lease struct{ amount, ends int64 }

// expire drops the leases that are over.
func (w *window) expire(now int64) {
	if now < w.soonest {
		return
	}
	w.soonest = math.MaxInt64
	for id, l := range w.leases {
		if l.ends <= now {
			w.release(id)
		} else {
			w.soonest = min(w.soonest, l.ends)
		}
	}
}

// take makes a lease.
func (w *window) take(id pool.ID, amount, ends int64) {
	if w.leases == nil {
		w.leases = map[pool.ID]lease{}
	}
	w.release(id) // an id used twice must not leave a reservation without a lease
	w.leases[id] = lease{amount: amount, ends: ends}
	w.reserved += amount
	w.soonest = min(w.soonest, ends)
}

// renew lets a lease end at another instant, unless it is over.
func (w *window) renew(id pool.ID, now, ends int64) {
	if l, found := w.leases[id]; found && l.ends > now {
		w.leases[id] = lease{amount: l.amount, ends: ends}
		w.soonest = min(w.soonest, ends)
	}
}

// release ends a lease, if there is one.
func (w *window) release(id pool.ID) {
	w.reserved -= w.leases[id].amount
	delete(w.leases, id)
}

// live is what is reserved by leases that are not over. It changes nothing.
func (w *window) live(now int64) int64 {
	if now < w.soonest {
		return w.reserved
	}
	var sum int64
	for _, l := range w.leases {
		if l.ends > now {
			sum += l.amount
		}
	}
	return sum
}

// keptUntil is when a window that ends then is forgotten.
func keptUntil(end int64) int64 { return end + pool.WindowMemory.Microseconds() }
