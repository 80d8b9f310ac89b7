package redis

import (
	"testing"
	"time"
)

// away is an absence with instants in seconds.
type away struct {
	*testing.T
	absence
}

const second = 1_000_000

func (a *away) outage(from, to float64) {
	a.failed(int64(from * second))
	a.answered(int64(to * second))
}

// heardAt holds when a node counts as heard of that was heard of then.
func (a *away) heardAt(heartbeat, now, want float64) {
	a.Helper()
	if got := a.heard(int64(heartbeat*second), int64(now*second)); got != int64(want*second) {
		a.Errorf("heard of at %v s counts as %v s, want %v s", heartbeat, float64(got)/second, want)
	}
}

// TestBlips has calls that fail now and then while Redis is there: no lease ends of that, and nobody comes alive.
func TestBlips(t *testing.T) {
	a := &away{T: t}
	a.answered(1000 * second)
	for i := range 200 {
		from := 1000 + float64(i)
		a.outage(from, from+0.5)
		if !a.settled(int64((from + 0.6) * second)) {
			t.Fatalf("nobody is sent to a node after %d calls that failed, each at another time", i+1)
		}
	}
	a.heardAt(1190, 1199.5, 1199.5)
	a.heardAt(1100, 1199.5, 1100)
	a.heardAt(900, 1199.5, 900)
	if len(a.past) > mostOutages {
		t.Errorf("%d outages are remembered, want at most %d", len(a.past), mostOutages)
	}
}

// TestCallsThatWaitedLongest has a call that began before others were answered.
func TestCallsThatWaitedLongest(t *testing.T) {
	a := &away{T: t}
	a.answered(100 * second)
	a.outage(50, 100.5)
	if !a.settled(101 * second) {
		t.Error("leases count as lost though Redis was there half a second ago")
	}
	a.heardAt(60, 101, 60)
}

// TestHeardOfInOutages adds up for how long Redis was there.
func TestHeardOfInOutages(t *testing.T) {
	a := &away{T: t}
	a.answered(1000 * second)
	a.outage(1000, 1060)
	a.answered(1080 * second)
	a.outage(1080, 1200)
	for heartbeat, want := range map[float64]float64{
		1210: 1210, // after it
		1190: 1200, // by another replica, in the second one
		1070: 1200, // between them
		990:  1200, // 10 s and 20 s before them
		989:  989,
		100:  100,
	} {
		a.heardAt(heartbeat, 1210, want)
	}
	// An earlier outage that ended longer ago matters no more.
	a.answered(1240 * second)
	a.outage(1240, 1241)
	if len(a.past) != 1 {
		t.Errorf("%v are remembered, want the last", a.past)
	}
	a.heardAt(1205, 1241, 1205)
	// A long one is not forgotten for many short ones.
	a.answered(1242 * second)
	a.outage(1242, 1300)
	for i := range 2 * mostOutages {
		from := 1300 + float64(i)/100
		a.answered(int64(from * second))
		a.outage(from, from+0.001)
	}
	a.heardAt(1240, 1302, 1300+float64(2*mostOutages-1)/100+0.001)
}

// TestClockThatIsSet has a replica whose clock was wrong until Redis told it the time, and a Redis whose clock is set back.
func TestClockThatIsSet(t *testing.T) {
	a := &away{T: t}
	a.failed(5000 * second) // on a clock that is ahead
	a.answered(1000 * second)
	a.heardAt(980, 1001, 1000)
	a.heardAt(100, 1001, 100)
	if !a.settled(1001 * second) {
		t.Error("a clock that was ahead makes leases count as lost")
	}

	a = &away{T: t}
	a.failed(100 * second) // on a clock that is behind
	a.corrected(900*second, 1001*second)
	a.answered(1002 * second)
	a.heardAt(900, 1002, 900)
	if !a.settled(1002 * second) {
		t.Error("a clock that was behind makes leases count as lost")
	}
	a.corrected(second, 1003*second) // nothing is open
	if !a.settled(1003 * second) {
		t.Error("a clock that is a second off makes leases count as lost")
	}
	a.corrected(int64(forgetsAfter/time.Microsecond), 1010*second)
	if a.settled(1010*second) || !a.settled(1010*second+settling.Microseconds()) {
		t.Error("leases end where the clock goes ahead, and have to count as lost until they are renewed")
	}

	a = &away{T: t}
	a.lost(5000*second, 5003*second)
	back := int64(1000 * second)
	if a.settled(back) || !a.settled(back+settling.Microseconds()) {
		t.Error("leases have to count as lost for as long as otherwise, not until the clock is there again")
	}
	a.heardAt(999, 1000, 999)
	if got := a.last(back); got != 0 {
		t.Errorf("an outage ended at %d, which is yet to come", got)
	}
	a.outage(1000, 1010)
	a.heardAt(999, 1010, 1010)
}

// TestClockTellsHowWrongItWas by what Redis says.
func TestClockTellsHowWrongItWas(t *testing.T) {
	local := time.Unix(5000, 0)
	c := clock{local: func() time.Time { return local }, born: time.Now()}
	if by := c.learn(1000 * second); by != -4000*second || c.guess() != 1000*second {
		t.Errorf("wrong by %d, guesses %d", by, c.guess())
	}
	local = local.Add(time.Second)
	if by := c.learn(1001*second + 7); by != 7 {
		t.Errorf("wrong by %d, want 7", by)
	}
}
