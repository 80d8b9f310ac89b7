package servertest_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestLimits_HowManyGoAtOnce counts the calls of a crowd that a rate lets through, and finds the very microsecond at which
// it lets the next one through.
func TestLimits_HowManyGoAtOnce(t *testing.T) {
	t.Parallel()
	const tooMany = 10
	onBothMeters(t, func(t *testing.T, c counters) {
		l := limitedBy(t, c, nil)
		for _, one := range []struct {
			rpm, burst int32
			atOnce     int64
		}{
			{1, 0, 1}, {1, -1, 1}, {1, 5, 6},
			{2, 0, 2}, {2, -1, 1}, {2, 5, 6},
			{60, 0, 60}, {60, -1, 1}, {60, 5, 6},
		} {
			t.Run(fmt.Sprintf("rpm %d burst %d", one.rpm, one.burst), func(t *testing.T) {
				model, name := fmt.Sprintf("m-%d-%d", one.rpm, one.burst), fmt.Sprintf("app-%d.%d", one.rpm, one.burst)
				l.models(t, l.priced(model, func(m *ktmsv1.ModelSpec) { m.Rpm, m.RpmBurst = one.rpm, one.burst }))
				key := l.key(t, name, nil)
				var crowd sync.WaitGroup
				var served atomic.Int64
				for range one.atOnce + tooMany {
					crowd.Go(func() {
						switch got := l.openai(t.Context(), t, key, ask{model: model}); {
						case got.ok():
							served.Add(1)
						case got.reason != "throttled:rpm" || got.http != 429:
							t.Errorf("%+v", got)
						}
					})
				}
				crowd.Wait()
				if got := served.Load(); got != one.atOnce {
					t.Errorf("%d went at once, want %d", got, one.atOnce)
				}
				next := time.Minute / time.Duration(one.rpm)
				try := func(want bool, wait time.Duration) {
					t.Helper()
					if got := l.openai(t.Context(), t, key, ask{model: model}); got.ok() != want || got.wait != wait {
						t.Errorf("%+v, want answered %v and a wait of %v", got, want, wait)
					}
				}
				try(false, next)
				l.clock.Advance(next - time.Microsecond)
				try(false, time.Second) // a header has whole seconds
				l.clock.Advance(time.Microsecond)
				try(true, 0)
				try(false, next)
			})
		}
	})
}
