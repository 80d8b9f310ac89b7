package noderegistry

import (
	"sync"
	"time"

	"github.com/ai-process/ktms/server/status"
)

// How often one node may call. Each call of a node is work for the pool, and each heartbeat has every replica read the node
// anew; an agent calls once in a second at most, and a few times in a row when it starts.
const (
	callsAtOnce    = 100
	callsPerSecond = 5
	// maxCallers bounds the nodes that are remembered.
	maxCallers = 10_000
	// toldEvery is how often a flood is told of in the log.
	toldEvery = time.Minute
)

// floods keeps count of the calls of each node at this replica. The zero value is ready.
type floods struct {
	mu    sync.Mutex
	nodes map[string]*calls
}

// calls is what one node may still make.
type calls struct {
	left float64
	at   time.Time
	told time.Time
}

// admit counts a call, and returns the refusal of one that is too many. tell: the log has to hear of it.
func (f *floods) admit(nodeID string, now time.Time) (refused *status.Error, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.nodes[nodeID]
	if known == nil {
		if f.nodes == nil || len(f.nodes) >= maxCallers {
			f.nodes = map[string]*calls{}
		}
		known = &calls{left: callsAtOnce, at: now}
		f.nodes[nodeID] = known
	}
	known.left = min(known.left+max(now.Sub(known.at).Seconds(), 0)*callsPerSecond, callsAtOnce)
	known.at = now
	if known.left >= 1 {
		known.left--
		return nil, false
	}
	if tell = now.Sub(known.told) >= toldEvery; tell {
		known.told = now
	}
	refused = status.New(status.ThrottledKeyRPM, "the node %q calls more than %d times a second; an agent sends one heartbeat every few seconds", nodeID, callsPerSecond)
	refused.RetryAfter = time.Second
	return refused, tell
}
