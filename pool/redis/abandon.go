package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
)

const (
	// abandonEvery is the time between two tries to take back what a choice may have taken.
	abandonEvery = time.Second
	// abandonTimes is how often it is taken back: a question that Redis read on a connection that was given up may be carried
	// out after one that came later on another.
	abandonTimes = 2
	// abandonFor is how long a Redis may be frozen that carries out what it was asked before. Afterwards, and beyond the last
	// mostDoubts, slots stay taken until their leases end.
	abandonFor = time.Hour
	mostDoubts = 4096
)

// doubt is a choice whose answer nobody has: Redis hung, and carries it out when it goes on, or the caller left.
type doubt struct {
	id    pool.ID
	nodes []string
	left  int
	// until is when that is given up, which is no earlier than when its lease would have ended.
	until time.Time
}

// doubts are those that are still to be taken back.
type doubts struct {
	mu      sync.Mutex
	all     []doubt
	running bool
}

// keep leaves the last ones.
func (d *doubts) keep(all []doubt) { d.all = slices.Delete(all, 0, max(len(all)-mostDoubts, 0)) }

// abandon takes back what a choice may have taken, off the caller's path: the slot would stay taken until its lease ends.
func (n *Nodes) abandon(choosing *pool.Choosing) {
	d := doubt{id: choosing.ID, left: abandonTimes, until: time.Now().Add(max(abandonFor, choosing.TTL))}
	for i := range choosing.Contenders {
		d.nodes = append(d.nodes, choosing.Contenders[i].Node)
	}
	n.doubts.mu.Lock()
	defer n.doubts.mu.Unlock()
	n.doubts.keep(append(n.doubts.all, d))
	if !n.doubts.running {
		n.doubts.running = true
		n.client.spawn(n.settleDoubts)
	}
}

// settleDoubts runs until none is left.
func (n *Nodes) settleDoubts() {
	ticks := time.NewTicker(abandonEvery)
	defer ticks.Stop()
	for {
		n.doubts.mu.Lock()
		all := n.doubts.all
		n.doubts.all = nil
		n.doubts.running = len(all) > 0
		n.doubts.mu.Unlock()
		if len(all) == 0 {
			return
		}
		all = n.settle(all)
		n.doubts.mu.Lock()
		n.doubts.keep(append(all, n.doubts.all...))
		n.doubts.mu.Unlock()
		select {
		case <-ticks.C:
		case <-n.client.life.Done():
			return
		}
	}
}

// settle takes each back once, and returns those for which that is not enough.
func (n *Nodes) settle(all []doubt) []doubt {
	var rest []doubt
	for i, d := range all {
		if time.Now().After(d.until) {
			continue
		}
		_, err := n.run(context.Background(), "abandon", n.client.scripts.abandon, func(r *request) {
			for _, id := range d.nodes {
				r.node(id, kindLoad, kindInflight, kindLease)
			}
			r.word(string(d.id))
		})
		if err != nil {
			return append(rest, all[i:]...) // the others would fare no better
		}
		if d.left--; d.left > 0 {
			rest = append(rest, d)
		}
	}
	return rest
}
