package nodes

import (
	"sync"
	"time"

	"github.com/ai-process/ktms/pool/selection"
)

// place is a model on a node.
type place struct{ node, model string }

// paces are how quickly nodes read prompts, as this replica's own calls have shown it.
type paces struct {
	mu    sync.Mutex
	known map[place]selection.Pace
}

// maxPaces bounds what is learned: nodes and their models come and go.
const maxPaces = 10_000

// of is in seconds per token; 0 = unknown.
func (p *paces) of(node, model string) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.known[place{node, model}])
}

func (p *paces) learn(node, model string, ttft time.Duration, tokens int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := place{node, model}
	if _, found := p.known[at]; !found && len(p.known) >= maxPaces {
		for other := range p.known { // any: it is learned again within a few calls
			delete(p.known, other)
			break
		}
	}
	p.known[at] = p.known[at].Learn(ttft.Seconds(), tokens)
}
