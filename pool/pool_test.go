package pool_test

import (
	"context"
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

// settler remembers what it was asked to settle.
type settler struct {
	pool.Meter
	id      pool.ID
	actuals []pool.Actual
}

func (s *settler) Settle(_ context.Context, id pool.ID, actuals []pool.Actual) error {
	s.id, s.actuals = id, actuals
	return pool.ErrUnavailable
}

func TestVoid(t *testing.T) {
	t.Parallel()
	bookings := []pool.Booking{{Charge: pool.Charge{Key: "rpm", Amount: 1}}, {Charge: pool.Charge{Key: "day", Amount: 500}}}
	var s settler
	if err := pool.Void(t.Context(), &s, "call", bookings); !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("got %v, want what Settle said", err)
	}
	if want := []pool.Actual{{Booking: bookings[0]}, {Booking: bookings[1]}}; s.id != "call" || !slices.Equal(s.actuals, want) {
		t.Errorf("%s was settled with %+v, want %+v", s.id, s.actuals, want)
	}
}
