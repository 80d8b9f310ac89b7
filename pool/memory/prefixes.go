package memory

import (
	"slices"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
)

// sweepStep is how many keys are looked at in one call at most: more than one call adds, so that sweeping keeps up.
const sweepStep = 4 * selection.MaxPrefixes

// prefixes are the beginnings of prompts, with the generations that are believed to hold them.
type prefixes struct {
	held map[selection.Key][]holding
	// line has every key once, about in the order in which they are to be looked at.
	line []lookAt
}

// holding is a generation that holds a prefix until then, in microseconds.
type holding struct {
	generation string
	until      int64
}

type lookAt struct {
	key selection.Key
	at  int64
}

func newPrefixes() prefixes { return prefixes{held: map[selection.Key][]holding{}} }

// beginning is one of a prompt, with those who hold it.
type beginning struct {
	tokens  int64
	holders []holding
}

// of looks up the beginnings of a prompt that are known, deepest first.
func (p *prefixes) of(prompt []selection.Prefix) []beginning {
	var found []beginning
	for _, prefix := range slices.Backward(prompt) {
		if holders := p.held[prefix.Key]; holders != nil {
			found = append(found, beginning{prefix.Tokens, holders})
		}
	}
	return found
}

// holds reports whether a generation is among the holders of now.
func holds(holders []holding, generation string, now int64) bool {
	return slices.ContainsFunc(holders, func(h holding) bool { return h.generation == generation && now < h.until })
}

// matched is how many tokens of a prompt a generation is believed to hold.
func matched(prompt []beginning, generation string, now int64) int64 {
	for _, b := range prompt {
		if holds(b.holders, generation, now) {
			return b.tokens
		}
	}
	return 0
}

// holders tells which of the generations hold the deepest prefix that any of them holds.
func (p *prefixes) holders(prompt []selection.Prefix, generations []string, now int64) []bool {
	deepest := make([]bool, len(generations))
	for _, b := range p.of(prompt) {
		for i, generation := range generations {
			deepest[i] = holds(b.holders, generation, now)
		}
		if slices.Contains(deepest, true) {
			break
		}
	}
	return deepest
}

// record notes that a generation holds a prompt from now on.
func (p *prefixes) record(prompt []selection.Prefix, generation string, now int64) {
	until := now + pool.PrefixMemory.Microseconds()
	for _, prefix := range prompt {
		before, listed := p.held[prefix.Key]
		if !listed {
			p.line = append(p.line, lookAt{prefix.Key, until})
		}
		kept := slices.DeleteFunc(before, func(h holding) bool { return h.until <= now || h.generation == generation })
		kept = append(kept, holding{generation, until})
		if over := len(kept) - pool.MaxHolders; over > 0 {
			kept = slices.Delete(kept, 0, over)
		}
		p.held[prefix.Key] = kept
	}
}

// sweep forgets some of what is held no more. A key that is still held lines up again.
func (p *prefixes) sweep(now int64) {
	for range sweepStep {
		if len(p.line) == 0 || now < p.line[0].at {
			return
		}
		key := p.line[0].key
		p.line = p.line[1:]
		kept := slices.DeleteFunc(p.held[key], func(h holding) bool { return h.until <= now })
		if len(kept) == 0 {
			delete(p.held, key)
			continue
		}
		p.held[key] = kept
		// The last one was recorded last.
		p.line = append(p.line, lookAt{key, kept[len(kept)-1].until})
	}
}
