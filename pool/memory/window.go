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
	// leases are reservations with when they end by themselves, in microseconds; then they are over.
	leases map[leaseName]int64
	// soonest is not later than any lease's end, so that leases are looked through only when one may be over.
	soonest int64
}

// leaseName identifies a reservation: an id has one for each amount.
type leaseName struct {
	id     pool.ID
	amount int64
}

// expire drops the leases that are over.
func (w *window) expire(now int64) {
	if now < w.soonest {
		return
	}
	w.soonest = math.MaxInt64
	for name, ends := range w.leases {
		if ends <= now {
			w.release(name)
		} else {
			w.soonest = min(w.soonest, ends)
		}
	}
}

// take makes a lease, or lets the one that there is end at another instant.
func (w *window) take(name leaseName, ends int64) {
	if w.leases == nil {
		w.leases = map[leaseName]int64{}
	}
	if _, found := w.leases[name]; !found {
		w.reserved += name.amount
	}
	w.leases[name] = ends
	w.soonest = min(w.soonest, ends)
}

// renew lets a lease end at another instant, unless it is over.
func (w *window) renew(name leaseName, now, ends int64) {
	if w.leases[name] > now {
		w.take(name, ends)
	}
}

// release ends a lease, if there is one.
func (w *window) release(name leaseName) {
	if _, found := w.leases[name]; found {
		w.reserved -= name.amount
		delete(w.leases, name)
	}
}

// add counts what calls came to, up to what every implementation can count.
func (w *window) add(came int64) { w.settled += min(came, pool.MaxAmount-w.settled) }

// live is what is reserved by leases that are not over. It changes nothing.
func (w *window) live(now int64) int64 {
	if now < w.soonest {
		return w.reserved
	}
	var sum int64
	for name, ends := range w.leases {
		if ends > now {
			sum += name.amount
		}
	}
	return sum
}

// keptUntil is when a window that ends then is forgotten.
func keptUntil(end int64) int64 { return end + pool.WindowMemory.Microseconds() }
