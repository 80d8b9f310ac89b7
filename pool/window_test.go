package pool_test

import (
	"math"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct {
		span             pool.Span
		now, start, ends string
	}{
		{pool.Day, "2026-05-04T12:30:15.123456Z", "2026-05-04T00:00:00Z", "2026-05-05T00:00:00Z"},
		{pool.Day, "2026-05-04T00:00:00Z", "2026-05-04T00:00:00Z", "2026-05-05T00:00:00Z"},
		{pool.Day, "2026-05-03T23:59:59.999999999Z", "2026-05-03T00:00:00Z", "2026-05-04T00:00:00Z"},
		{pool.Day, "2026-05-05T01:59:59+02:00", "2026-05-04T00:00:00Z", "2026-05-05T00:00:00Z"},
		{pool.Day, "2026-03-29T03:30:00+02:00", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"}, // 23 hours long in Berlin
		{pool.Month, "2026-05-04T12:30:15Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z"},
		{pool.Month, "2026-02-28T23:59:59.999999999Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{pool.Month, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{pool.Month, "2100-02-28T12:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{pool.Month, "2026-12-31T23:59:59.999999Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{pool.Month, "2027-01-01T00:30:00+01:00", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{pool.Month, "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"},
		{pool.Span(5 * time.Second), "2026-05-04T12:30:19.999999Z", "2026-05-04T12:30:15Z", "2026-05-04T12:30:20Z"},
		{pool.Span(5 * time.Second), "2026-05-04T12:30:20Z", "2026-05-04T12:30:20Z", "2026-05-04T12:30:25Z"},
		{pool.Span(7 * time.Second), "1970-01-01T00:00:13.999999Z", "1970-01-01T00:00:07Z", "1970-01-01T00:00:14Z"},
		{pool.Span(time.Microsecond), "2026-05-04T12:30:15.123456789Z", "2026-05-04T12:30:15.123456Z", "2026-05-04T12:30:15.123457Z"},
	} {
		start, end := c.span.At(at(c.now))
		if !start.Equal(at(c.start)) || !end.Equal(at(c.ends)) || start.Location() != time.UTC || end.Location() != time.UTC {
			t.Errorf("%s with %d is in %s to %s, want %s to %s", c.now, c.span, start, end, c.start, c.ends)
		}
	}
}

// TestSpansJoin walks from window to window: each begins where the one before is over.
func TestSpansJoin(t *testing.T) {
	t.Parallel()
	for _, span := range []pool.Span{pool.Day, pool.Month, pool.Span(5 * time.Second), pool.Span(7 * time.Hour)} {
		start, end := span.At(time.Date(2023, 12, 30, 1, 2, 3, 4567, time.UTC))
		for range 2000 {
			if again, sameEnd := span.At(start); again != start || sameEnd != end {
				t.Fatalf("%d: the window at %s is from %s to %s, want to %s", span, start, again, sameEnd, end)
			}
			if again, sameEnd := span.At(end.Add(-1)); again != start || sameEnd != end {
				t.Fatalf("%d: the last of %s is from %s to %s", span, start, again, sameEnd)
			}
			next, nextEnd := span.At(end)
			if next != end || !nextEnd.After(end) {
				t.Fatalf("%d: after %s it goes on from %s to %s", span, end, next, nextEnd)
			}
			start, end = next, nextEnd
		}
	}
}

func TestWindowFits(t *testing.T) {
	t.Parallel()
	const most, largest = pool.MaxAmount, math.MaxInt64
	for _, c := range []struct {
		limit, grace, used, amount int64
		fits, never                bool
		remaining                  int64
	}{
		{100, 0, 0, 100, true, false, 100},
		{100, 0, 1, 100, false, false, 99},
		{100, 0, 0, 101, false, true, 100},
		{100, 0, 99, 0, true, false, 1},
		{100, 0, 100, 0, false, false, 0},
		{100, 0, 250, 1, false, false, 0},
		{100, 10, 100, 10, true, false, 0},
		{100, 10, 100, 11, false, false, 0},
		{100, 10, 110, 0, false, false, 0},
		{100, 10, 0, 111, false, true, 100},
		{0, 0, 0, 0, false, true, 0},
		{0, 1, 0, 0, true, false, 0},
		{most, 0, 0, most, true, false, most},
		{most, 0, 1, most, false, false, most - 1},
		{most, most, most, 1, false, false, 0},
		{most, most, most - 1, 1, true, false, 1},
		{most - 5, 10, most - 5, 5, true, false, 0},
		{most - 5, 10, most - 5, 6, false, false, 0},
		{most - 5, 5, most - 5, 5, true, false, 0},
		{1, most, most, 0, false, false, 0},
		{most, 0, most - 1, 1, true, false, 1},
		{most, 0, most - 1, 2, false, false, 1},
		{most + 1, 0, 1, most, false, false, most - 1},
		{largest, 0, 0, most, true, false, most},
		{largest, 0, 1, most, false, false, most - 1},
		{largest, largest, most - 1, 1, true, false, 1},
		{largest, largest, most, 0, false, false, 0},
		{1, largest, most - 1, 1, true, false, 0},
		{0, largest, 0, most + 1, false, true, 0},
	} {
		w := pool.Window{Limit: c.limit, Grace: c.grace, Span: pool.Day}
		if got := w.Fits(c.used, c.amount); got != c.fits {
			t.Errorf("%+v with %d used: that %d fit is %t, want %t", w, c.used, c.amount, got, c.fits)
		}
		if got := w.Never(c.amount); got != c.never {
			t.Errorf("%+v: that %d never fit is %t, want %t", w, c.amount, got, c.never)
		}
		if got := w.Remaining(c.used); got != c.remaining {
			t.Errorf("%+v with %d used: %d remain, want %d", w, c.used, got, c.remaining)
		}
	}
}
