package status

import (
	"strconv"
	"time"
)

// Allowance is what a caller may still use of one rate.
type Allowance struct {
	// Unit is UnitRequests or UnitTokens.
	Unit string
	// Limit is how much fits at once, Remaining what of it is left, Reset how long until all of it is there again.
	Limit, Remaining int64
	Reset            time.Duration
}

// The units of allowances, as they end the headers' names.
const (
	UnitRequests = "requests"
	UnitTokens   = "tokens"
)

// Headers yields the response headers that allowances become, as OpenAI spells them.
func Headers(allowances []Allowance) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for _, a := range allowances {
			if !yield("X-Ratelimit-Limit-"+a.Unit, strconv.FormatInt(a.Limit, 10)) ||
				!yield("X-Ratelimit-Remaining-"+a.Unit, strconv.FormatInt(a.Remaining, 10)) ||
				!yield("X-Ratelimit-Reset-"+a.Unit, resetText(a.Reset)) {
				return
			}
		}
	}
}

// HeaderNames are all names that Headers may yield.
func HeaderNames() []string {
	var names []string
	for name := range Headers([]Allowance{{Unit: UnitRequests}, {Unit: UnitTokens}}) {
		names = append(names, name)
	}
	return names
}

// resetText writes a time as OpenAI does: 120ms, 8.64s, 6m0s. It is rounded up, so that nobody comes back too early.
func resetText(d time.Duration) string {
	if d < time.Second {
		return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10) + "ms"
	}
	const hundredth = 10 * time.Millisecond
	return (d + hundredth - 1).Truncate(hundredth).String()
}
