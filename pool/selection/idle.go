package selection

import "time"

// Idle is how long a slot stays idle after a request that took busy: where a level leaves a node more slots than its share
// of time, each slot works that share alone. One slot at 50 % is idle for as long as it was busy.
func Idle(maxConcurrency, level int64, busy time.Duration) time.Duration {
	maximum, slots := max(maxConcurrency, 1), Slots(max(maxConcurrency, 1), level)
	share := maximum * min(max(level, 0), FullLevel) // of 100 slots
	if share <= 0 || slots*FullLevel <= share {
		return 0
	}
	return time.Duration(float64(busy) * (float64(slots*FullLevel)/float64(share) - 1))
}
