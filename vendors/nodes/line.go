package nodes

import (
	"math/rand/v2"
	"sync"
	"time"
)

// lines are the requests of this replica that wait for a slot, by model.
type lines struct {
	mu      sync.Mutex
	byModel map[string]*line
}

// line is one model's.
type line struct {
	waiting []chan struct{} // the longest waiting first
	// service is how long a request occupies a slot on average, in seconds; 0 = unknown.
	service float64
}

const (
	// serviceGain is how much of a call's time goes into the average.
	serviceGain = 0.1
	// shortestNap and longestNap bound the time between two looks for a free slot. Slots that this replica frees wake the
	// first in line at once; the naps are for those that others free.
	shortestNap = 20 * time.Millisecond
	longestNap  = 250 * time.Millisecond
	// nappers is how many more in line make the naps twice as long: together they must not keep the pool busy.
	nappers = 4
	// maxLines bounds the models that are remembered; the catalogue is the operator's and far smaller.
	maxLines = 10_000
)

func (l *lines) of(model string) *line {
	found := l.byModel[model]
	if found == nil {
		if len(l.byModel) >= maxLines {
			clear(l.byModel)
		}
		found = &line{}
		l.byModel[model] = found
	}
	return found
}

// served learns from a call.
func (l *lines) served(model string, busy time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.of(model)
	if line.service == 0 {
		line.service = busy.Seconds()
		return
	}
	line.service += serviceGain * (busy.Seconds() - line.service)
}

// freed wakes the first in line.
func (l *lines) freed(model string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.byModel[model]; line != nil && len(line.waiting) > 0 {
		select {
		case line.waiting[0] <- struct{}{}:
		default: // it is up already
		}
	}
}

// place is one request's in the line.
type turn struct {
	lines *lines
	model string
	wake  chan struct{}
}

// join puts a request at the end of the line.
func (l *lines) join(model string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &turn{lines: l, model: model, wake: make(chan struct{}, 1)}
	line := l.of(model)
	line.waiting = append(line.waiting, t.wake)
	return t
}

// standing is how many are ahead, and how long a request takes on average, in seconds.
func (t *turn) standing() (ahead int64, service float64) {
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	line := t.lines.of(t.model)
	for i, other := range line.waiting {
		if other == t.wake {
			return int64(i), line.service
		}
	}
	return int64(len(line.waiting)), line.service
}

// nap is how long to wait for the next look, with so many ahead.
func nap(ahead int64) time.Duration {
	mean := min(shortestNap+shortestNap*time.Duration(ahead)/nappers, longestNap)
	return mean/2 + rand.N(mean)
}

// leave takes a request out of the line. Whoever is first now may have missed a slot that was freed for it.
func (t *turn) leave() {
	t.lines.mu.Lock()
	line := t.lines.of(t.model)
	for i, other := range line.waiting {
		if other == t.wake {
			line.waiting = append(line.waiting[:i:i], line.waiting[i+1:]...)
			break
		}
	}
	t.lines.mu.Unlock()
	t.lines.freed(t.model)
}
