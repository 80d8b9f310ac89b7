package pool

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool/selection"
)

// TestHealthBesideAClockThatIsSet: what is yet to come is from before the clock was set back, and says no more than what is as
// long ago.
func TestHealthBesideAClockThatIsSet(t *testing.T) {
	const ttl = 15 * time.Second
	now := time.Unix(1_800_000_000, 0)
	for after, want := range map[time.Duration]selection.Health{
		-ttl - 1: selection.Offline, -ttl: selection.Healthy, ttl: selection.Healthy, ttl + 1: selection.Offline, time.Hour: selection.Offline,
	} {
		n := Node{HeartbeatAt: now.Add(after)}
		if got, _ := n.Health(now, ttl); got != want {
			t.Errorf("heard of %v from now: %v, want %v", after, got, want)
		}
	}
	for after, want := range map[time.Duration]selection.Health{
		-BreakCooldown: selection.Trial, 1 - BreakCooldown: selection.Broken, BreakCooldown - 1: selection.Broken, time.Hour: selection.Trial,
	} {
		n := Node{HeartbeatAt: now, OpenedAt: now.Add(after)}
		if got, _ := n.Health(now, ttl); got != want {
			t.Errorf("opened %v from now: %v, want %v", after, got, want)
		}
	}
}
