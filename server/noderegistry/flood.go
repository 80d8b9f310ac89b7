package noderegistry

import (
	"sync"
	"time"

	"github.com/ai-process/ktms/server/status"
)

// allowance is how often one node may do something: so many times at once, and so often in a second after that.
type allowance struct{ atOnce, perSecond float64 }

var (
	// calls: each is work for the pool, and each heartbeat has every replica read the node anew. An agent calls once in a
	// second at most, and a few times in a row when it starts.
	calls = allowance{100, 5}
	// registrations: one at another endpoint closes the node's circuit, which nobody shall do as often as it opens. An agent
	// registers when it starts, and when the address of its tunnel changes.
	registrations = allowance{20, 0.1}
)

const (
	// maxCallers bounds the nodes that are remembered.
	maxCallers = 10_000
	// toldEvery is how often a flood is told of in the log.
	toldEvery = time.Minute
)

// floods keeps count of what each node does at this replica. The zero value is ready.
type floods struct {
	mu    sync.Mutex
	nodes map[string]*doings
}

// doings is what one node may still do.
type doings struct {
	calls, registrations bucket
	told                 time.Time
}

// bucket is what is left of an allowance.
type bucket struct {
	left float64
	at   time.Time
}

// take uses one up, and returns how long to wait where none is left.
func (b *bucket) take(of allowance, now time.Time) (wait time.Duration) {
	b.left = min(b.left+max(now.Sub(b.at).Seconds(), 0)*of.perSecond, of.atOnce)
	b.at = now
	if b.left < 1 {
		return time.Duration((1 - b.left) / of.perSecond * float64(time.Second))
	}
	b.left--
	return 0
}

// admit counts a call, or a registration that would be taken, and returns the refusal of one that is too many. tell: the log
// has to hear of it.
func (f *floods) admit(nodeID string, registers bool, now time.Time) (refused *status.Error, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.nodes[nodeID]
	if known == nil {
		if f.nodes == nil || len(f.nodes) >= maxCallers {
			f.nodes = map[string]*doings{}
		}
		known = &doings{calls: bucket{calls.atOnce, now}, registrations: bucket{registrations.atOnce, now}}
		f.nodes[nodeID] = known
	}
	var wait time.Duration
	what := "calls"
	if registers {
		wait, what = known.registrations.take(registrations, now), "registers"
	} else {
		wait = known.calls.take(calls, now)
	}
	if wait == 0 {
		return nil, false
	}
	if tell = now.Sub(known.told) >= toldEvery; tell {
		known.told = now
	}
	refused = status.New(status.ThrottledKeyRPM, "the node %q %s too often; an agent registers once, and sends a heartbeat every few seconds", nodeID, what)
	refused.RetryAfter = wait
	return refused, tell
}
