package memory

import (
	"slices"

	"github.com/ai-process/ktms/pool"
)

// turns are the current weights of the round robin, by model.
type turns map[string]*modelTurns

type modelTurns struct {
	// current is by node.
	current map[string]int64
	// order are the nodes, those last that took part last.
	order []string
	// until is when they are forgotten, in microseconds.
	until int64
}

// of returns the current weights of a model by node, or nil.
func (t turns) of(model string, now int64) map[string]int64 {
	if known := t[model]; known != nil && now < known.until {
		return known.current
	}
	return nil
}

// keep notes the current weights of those who took part in a choice, and keeps the model's on from now. Where there were
// none, it forgets those of models that nobody asks for any more.
func (t turns) keep(model string, nodes []string, weights []int64, now int64) {
	known := t[model]
	if known == nil || now >= known.until {
		for name, other := range t {
			if other.until <= now {
				delete(t, name)
			}
		}
		known = &modelTurns{current: map[string]int64{}}
		t[model] = known
	}
	known.until = now + pool.TurnMemory.Microseconds()
	known.order = append(slices.DeleteFunc(known.order, func(n string) bool { return slices.Contains(nodes, n) }), nodes...)
	for i, n := range nodes {
		known.current[n] = weights[i]
	}
	if over := len(known.order) - pool.MaxTurns; over > 0 {
		for _, n := range known.order[:over] {
			delete(known.current, n)
		}
		known.order = slices.Delete(known.order, 0, over)
	}
}
