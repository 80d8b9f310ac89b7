package pool

import "time"

// Span is how long a window lasts, in nanoseconds as a time.Duration is, or Month. With it goes where windows begin: always
// at the same instants for everybody, counted from 1970 in UTC.
type Span int64

const (
	// Day is a UTC day.
	Day = Span(24 * time.Hour)
	// Month is a UTC calendar month.
	Month Span = -1
)

// At returns the window that an instant falls into: it begins with start and is over at end.
func (s Span) At(t time.Time) (start, end time.Time) {
	t = t.UTC()
	if s == Month {
		start = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
		return start, start.AddDate(0, 1, 0)
	}
	micros, every := t.UnixMicro(), time.Duration(s).Microseconds()
	start = time.UnixMicro(micros - micros%every).UTC()
	return start, start.Add(time.Duration(s))
}

// Fits reports whether an amount may be booked on a window of which so much is used. An amount of 0 fits while a single
// unit would.
func (w Window) Fits(used, amount int64) bool {
	return max(amount, 1) <= w.Ceiling()-used // used is never negative
}

// Never reports whether an amount is too much even for a window of which nothing is used.
func (w Window) Never(amount int64) bool { return !w.Fits(0, amount) }

// Remaining is what still fits without the grace.
func (w Window) Remaining(used int64) int64 { return max(min(w.Limit, MaxAmount)-used, 0) }

// Standing is where a window stands at an instant, to the microsecond, of which so much is settled and reserved.
func (w Window) Standing(settled, reserved int64, now time.Time) Standing {
	start, end := w.Span.At(now)
	return Standing{Settled: settled, Reserved: reserved, Remaining: w.Remaining(settled + reserved), Reset: end.Sub(now), Start: start}
}

// Ceiling is the largest use that a window admits, its grace included: MaxAmount at most, beyond which not every unit
// counts.
func (w Window) Ceiling() int64 {
	return min(min(w.Limit, MaxAmount)+min(w.Grace, MaxAmount), MaxAmount)
}
