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

// has reports whether a generation is believed to hold a prefix.
func (p *prefixes) has(key selection.Key, generation string, now int64) bool {
	return slices.ContainsFunc(p.held[key], func(h holding) bool { return h.generation == generation && now < h.until })
}

// matched is how many tokens of a prompt a generation is believed to hold.
func (p *prefixes) matched(prompt []selection.Prefix, generation string, now int64) int64 {
	for _, prefix := range slices.Backward(prompt) {
		if p.has(prefix.Key, generation, now) {
			return prefix.Tokens
		}
	}
	return 0
}

// holders tells which of the generations hold the deepest prefix that any of them holds.
func (p *prefixes) holders(prompt []selection.Prefix, generations []string, now int64) []bool {
	holds := make([]bool, len(generations))
	for _, prefix := range slices.Backward(prompt) {
		for i, generation := range generations {
			holds[i] = p.has(prefix.Key, generation, now)
		}
		if slices.Contains(holds, true) {
			break
		}
	}
	return holds
}

// record notes that a generation holds a prompt from now on.
func (p *prefixes) record(prompt []selection.Prefix, generation string, now int64) {
	until := now + pool.PrefixMemory.Microseconds()
	for _, prefix := range prompt {
		known, listed := p.held[prefix.Key]
		if !listed {
			p.line = append(p.line, lookAt{prefix.Key, until})
		}
		kept := slices.DeleteFunc(known, func(h holding) bool { return h.until <= now || h.generation == generation })
		p.held[prefix.Key] = append(kept, holding{generation, until})
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
