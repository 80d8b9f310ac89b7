package selection_test

import (
	"testing"
	"time"

	"github.com/ai-process/ktms/pool/selection"
)

func TestIdle(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		maximum, level int64
		busy, want     time.Duration
	}{
		{1, 50, 20 * time.Second, 20 * time.Second},
		{1, 100, 20 * time.Second, 0},
		{2, 50, 20 * time.Second, 0}, // one slot of two is the level
		{4, 30, 24 * time.Second, 16 * time.Second},
		{1, 25, 4 * time.Second, 12 * time.Second},
		{1, 0, 20 * time.Second, 0}, // nothing comes again anyway
		{0, 50, time.Second, time.Second},
		{1, 300, time.Second, 0},
	} {
		if got := selection.Idle(test.maximum, test.level, test.busy); got != test.want {
			t.Errorf("%d slots at %d %%, busy for %v: idle for %v, want %v", test.maximum, test.level, test.busy, got, test.want)
		}
	}
}
