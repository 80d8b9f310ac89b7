package memory

import (
	"time"

	"github.com/ai-process/ktms/pool"
)

// once remembers ids, each for the same time, so that they are forgotten in the order in which they came.
type once struct {
	lifetime int64
	until    map[pool.ID]int64
	order    []pool.ID
}

func newOnce(lifetime time.Duration) *once {
	return &once{lifetime: lifetime.Microseconds(), until: map[pool.ID]int64{}}
}

// holds reports whether an id is remembered.
func (o *once) holds(id pool.ID, now int64) bool {
	until, found := o.until[id]
	return found && now < until
}

// add remembers an id that is not held, and forgets those whose time is over.
func (o *once) add(id pool.ID, now int64) {
	for len(o.order) > 0 && o.until[o.order[0]] <= now {
		delete(o.until, o.order[0])
		o.order = o.order[1:]
	}
	o.until[id] = now + o.lifetime
	o.order = append(o.order, id)
}
