package pool_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ai-process/ktms/pool"
)

func TestRefusalNamesCounters(t *testing.T) {
	t.Parallel()
	var err error = &pool.Refusal{Refused: []pool.Refused{{Charge: pool.Charge{Key: "rpm:a"}}, {Charge: pool.Charge{Key: "day:b"}}}}
	if got := err.Error(); got != "refused by rpm:a, day:b" {
		t.Errorf("it says %q", got)
	}
	var refusal *pool.Refusal
	if !errors.As(fmt.Errorf("admission: %w", err), &refusal) || errors.Is(err, pool.ErrUnavailable) {
		t.Error("a refusal is not told from a pool that is away")
	}
}

func TestVoid(t *testing.T) {
	t.Parallel()
	bookings := []pool.Booking{{Charge: pool.Charge{Key: "rpm", Amount: 1}}, {Charge: pool.Charge{Key: "day", Amount: 500}}}
	if got, want := pool.Void(bookings), []pool.Actual{{Booking: bookings[0]}, {Booking: bookings[1]}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
