package transport

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxWait is the longest wait that is believed. No vendor's window is longer than a day; what asks for more is a clock
// gone wrong or a number in another unit.
const maxWait = 24 * time.Hour

// RetryAfter is how long an answer asks to wait, 0 when it does not say so or says nonsense. The first of these that
// makes sense counts: retry-after-ms, retry-after (seconds or a date), and the longest reset of a limit that is used up.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if wait := number(h.Get("Retry-After-Ms"), time.Millisecond); wait > 0 {
		return wait
	}
	if text := h.Get("Retry-After"); text != "" {
		if wait := number(text, time.Second); wait > 0 {
			return wait
		}
		if at, err := http.ParseTime(text); err == nil {
			if wait := sane(at.Sub(clock(h, now))); wait > 0 {
				return wait
			}
		}
	}
	return usedUp(h, now)
}

// clock is the sender's clock where it says so: a date means what its sender's clock says, not ours.
func clock(h http.Header, now time.Time) time.Time {
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		return sent
	}
	return now
}

// usedUp finds the limits that have nothing remaining, and the time until the last of them is refilled.
func usedUp(h http.Header, now time.Time) time.Duration {
	var longest time.Duration
	for name, values := range h {
		if !strings.Contains(name, "Ratelimit") || !strings.Contains(name, "Remaining") || len(values) == 0 {
			continue
		}
		if left, err := strconv.ParseFloat(values[0], 64); err != nil || left > 0 {
			continue
		}
		longest = max(longest, reset(h.Get(strings.Replace(name, "Remaining", "Reset", 1)), now))
	}
	return longest
}

// reset reads "6m0s", "20ms", "1.5" (seconds) or an RFC 3339 time.
func reset(text string, now time.Time) time.Duration {
	if wait, err := time.ParseDuration(text); err == nil {
		return sane(wait)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return sane(at.Sub(now))
	}
	return number(text, time.Second)
}

func number(text string, unit time.Duration) time.Duration {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(f) || f <= 0 || f > float64(maxWait/unit) {
		return 0
	}
	return time.Duration(f * float64(unit))
}

func sane(wait time.Duration) time.Duration {
	if wait <= 0 || wait > maxWait {
		return 0
	}
	return wait
}
