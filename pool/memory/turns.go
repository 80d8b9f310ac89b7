package memory

import "github.com/ai-process/ktms/pool"

// turns are the current weights of the round robin, by model.
type turns map[string]*modelTurns

type modelTurns struct {
	// current is by node.
	current map[string]int64
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

// begin returns the current weights of a model, which are kept on from now. Where there were none, it forgets those of
// models that nobody asks for any more.
func (t turns) begin(model string, now int64) map[string]int64 {
	until := now + pool.TurnMemory.Microseconds()
	if known := t[model]; known != nil && now < known.until {
		known.until = until
		return known.current
	}
	for name, known := range t {
		if known.until <= now {
			delete(t, name)
		}
	}
	fresh := &modelTurns{current: map[string]int64{}, until: until}
	t[model] = fresh
	return fresh.current
}
