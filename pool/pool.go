// Package pool is the contract for everything that replicas share and that expires by itself: the counters behind rates,
// budgets and spend limits, and the machines that serve models.
//
// Implementations are named by technology (redis, memory) and run the suite in pooltest. What stays (the limits
// themselves) belongs to package store.
package pool

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// ErrUnavailable says that the pool did not answer, so that nothing is known of the counters. It comes wrapped.
var ErrUnavailable = errors.New("pool unavailable")

// ID names one attempt, or whatever else is booked exactly once. It is unique for ever and has no spaces or colons.
type ID string

// MaxAmount is the largest amount that is counted exactly; implementations count in float64, too. In nano-USD it is nine
// million dollars.
const MaxAmount = 1 << 53

// A Charge is one counter that an attempt has to fit under: a rate, or a window. Exactly one of the two is set.
type Charge struct {
	// Key names the counter; Key makes one. Two charges of one attempt never have the same.
	Key string
	// Reason is what a refusal by this counter is called. It means nothing to the pool.
	Reason string
	// Amount is what is booked at admission: requests, tokens or nano-USD, from 0 to MaxAmount. An amount of 0 is refused
	// where not even one would fit.
	Amount int64
	Rate   Rate
	Window Window
}

// IsRate reports whether the charge is on a rate; otherwise it is on a window.
func (c Charge) IsRate() bool { return c.Rate != Rate{} }

// Rate admits Limit per Per, steadily, and Burst more than one at once. The zero Rate is none.
type Rate struct {
	Limit int64
	Per   time.Duration
	Burst int64
}

// Window admits up to Limit, and Grace more, within each Span. The zero Window is none.
type Window struct {
	Limit int64
	Grace int64
	Span  Span
}

// Key makes a counter's key out of its parts, which may hold anything.
func Key(parts ...string) string {
	length := len(parts)
	for _, part := range parts {
		length += len(part)
	}
	var key strings.Builder
	key.Grow(length)
	for i, part := range parts {
		if i > 0 {
			key.WriteByte(':')
		}
		for j := range len(part) {
			// Escaped, so that two lists of parts never make one key; spaces separate what scripts store.
			if b := part[j]; b == ':' || b == '%' || b <= ' ' {
				key.WriteByte('%')
				key.WriteString(strconv.FormatUint(uint64(b), 16))
				key.WriteByte('.')
			} else {
				key.WriteByte(b)
			}
		}
	}
	return key.String()
}

// Standing is where a counter stands.
type Standing struct {
	// Settled and Reserved are the parts of a window's use: what calls came to, and what those in flight may come to. A
	// rate has neither.
	Settled, Reserved int64
	// Remaining is what still fits: of a window without its grace, never negative.
	Remaining int64
	// Reset is how long until the window ends, or until the whole burst is there again.
	Reset time.Duration
	// Start is when the window began; zero for a rate. With the key it names the window.
	Start time.Time
}

// Booking is a charge that was booked, and where its counter stood right after.
type Booking struct {
	Charge
	Standing
	// DrainedAt is when everything has drained from a rate that was booked on it up to this booking, by the Meter's
	// clock. From then on Settle has nothing to give back. It is zero for a window.
	DrainedAt time.Time
}

// Refused is a charge that did not fit, and where its counter stands.
type Refused struct {
	Charge
	Standing
	// RetryAfter is when the same charge may fit: after what drains, or when the window ends.
	RetryAfter time.Duration
	// Never: it does not fit under the limit even when nothing else is booked.
	Never bool
}

// Refusal is the error of an admission that did not fit. Nothing was booked.
type Refusal struct {
	// Refused are the charges that did not fit, in the order in which they were asked for.
	Refused []Refused
}

func (r *Refusal) Error() string {
	keys := make([]string, 0, len(r.Refused))
	for _, c := range r.Refused {
		keys = append(keys, c.Key)
	}
	return "refused by " + strings.Join(keys, ", ")
}

// Actual is what a booking came to.
type Actual struct {
	Booking
	// Came replaces the Amount that was booked. It may be more than the limit allows.
	Came int64
}

// Renewal names an attempt whose reservations go on.
type Renewal struct {
	ID       ID
	Bookings []Booking
}

// Meter counts. Implementations are safe for concurrent use and all see one clock, which is theirs. Every error but a
// *Refusal and the context's own wraps ErrUnavailable.
//
// What Admit books on a window is a reservation: it counts against the limit, and it ends by itself after ttl unless it is
// renewed, so that a replica that dies eats nothing up. What it books on a rate drains with time.
type Meter interface {
	// Admit books every charge or none, in one round trip, and returns a booking for each. The error is a *Refusal when
	// some do not fit. After ErrUnavailable it is not known whether the charges were booked. An id that is admitted once
	// more, as by one who got no answer, books on rates again; on a window it has one reservation for each amount, which
	// then ends after the later ttl, and has to fit beside itself.
	Admit(ctx context.Context, id ID, ttl time.Duration, charges []Charge) ([]Booking, error)
	// Renew lets reservations live for another ttl. Those that have ended, in whatever way, stay so.
	Renew(ctx context.Context, attempts []Renewal, ttl time.Duration) error
	// Settle replaces what was booked by what it came to, once for each id: a repetition within SettleMemory changes
	// nothing. A window counts it in full, up to MaxAmount, even when the reservation has ended in between; one that is over
	// keeps what belongs to it, within WindowMemory. A rate gets back at most what has not drained by then: the rest has made
	// room already. Bookings that are not named stay as they are.
	Settle(ctx context.Context, id ID, actuals []Actual) error
	// Debit books charges whether or not they fit, once for each id within DebitMemory.
	Debit(ctx context.Context, id ID, charges []Charge) error
	// Read tells where counters stand, without booking anything: amounts are ignored.
	Read(ctx context.Context, charges []Charge) ([]Standing, error)
}

const (
	// SettleMemory is how long a Settle is remembered. Whoever repeats one has to give up sooner. It is kept short because
	// every attempt leaves such a memory behind.
	SettleMemory = 15 * time.Minute
	// DebitMemory is how long a Debit is remembered. Debits are rare, and come from those who may start over much later.
	DebitMemory = 24 * time.Hour
	// WindowMemory is how long a window is kept after its end, so that the last calls within it can still be settled.
	// Later nothing of it is left, and what is settled then is not counted.
	WindowMemory = time.Hour
)

// Void is what bookings come to when nobody was reached: everything is given back, rates too.
func Void(bookings []Booking) []Actual {
	actuals := make([]Actual, 0, len(bookings)+1) // one more may be settled along with them
	for _, b := range bookings {
		actuals = append(actuals, Actual{Booking: b})
	}
	return actuals
}
