package pooltest

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
)

// TestLedgerSeesSurges holds that the ledger notices a rate that is passed by calls which were booked for much and came
// to little, whatever a Meter says of where it stands.
func TestLedgerSeesSurges(t *testing.T) {
	tokens := perMinute("tpm", 1000, 999)
	for _, test := range []struct {
		name  string
		came  int64 // of what each is booked for 990
		apart time.Duration
		calls int
		want  int64
	}{
		{"one after the other", 990, 59400 * time.Millisecond, 10, 990},
		{"all at once", 990, 0, 10, 9900},
		{"at once, and nearly void", 10, 0, 10, 100},
		{"at once, and more than booked", 2000, 0, 2, 1980},
		{"twice as fast", 990, 29700 * time.Millisecond, 3, 1980},
	} {
		clock := NewClock(noon)
		l := ledger{clock: clock, buckets: map[string]*bucket{}}
		for range test.calls {
			l.admitted("call", lease, []pool.Booking{{Charge: of(990, tokens)}})
			l.settled(l.attempts[len(l.attempts)-1].entries[0], test.came)
			clock.Advance(test.apart)
		}
		if got := l.surge(tokens); got.Cmp(whole(test.want)) != 0 {
			t.Errorf("%s: %s went at once, want %d", test.name, got.FloatString(3), test.want)
		}
	}
}
