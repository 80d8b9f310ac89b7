package main

import (
	"container/list"
	"slices"
)

// link is a beginning of a prompt as the engine itself sees it: a hash over all content up to there, and its tokens.
type link struct {
	hash   uint64
	tokens int
}

// cache is an engine's memory for what it has read. What running requests read and write stays there as long as they run,
// and takes the room of what is only remembered: of that the least recently used endings go first.
type cache struct {
	capacity int
	// used is all that is in it, pinned the part of running requests, answers that are being written included.
	used, pinned int
	entries      map[uint64]*entry
	order        list.List // those that nobody uses, the most recently used in front
}

type entry struct {
	hash  uint64
	added int // tokens beyond the link before
	users int
	// read: it can be reused. What is only planned to be read cannot.
	read bool
	at   *list.Element // nil while it is used
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, entries: map[uint64]*entry{}}
}

// held is how many tokens of a prompt need not be read again.
func (c *cache) held(chain []link) int {
	tokens := 0
	for _, l := range chain {
		if e := c.entries[l.hash]; e == nil || !e.read {
			break
		}
		tokens = l.tokens
	}
	return tokens
}

// fits reports whether there is room for a prompt and its answer beside all that runs.
func (c *cache) fits(chain []link, output int) bool {
	need := output
	for i, l := range chain {
		if e := c.entries[l.hash]; e == nil || e.users == 0 {
			need += added(chain, i)
		}
	}
	return c.pinned+need <= c.capacity
}

// begin takes room for a prompt and its answer.
func (c *cache) begin(chain []link, output int) {
	for i, l := range chain {
		e := c.entries[l.hash]
		if e == nil {
			e = &entry{hash: l.hash, added: added(chain, i)}
			c.entries[l.hash] = e
			c.used += e.added
		}
		if e.at != nil {
			c.order.Remove(e.at)
			e.at = nil
		}
		if e.users == 0 {
			c.pinned += e.added
		}
		e.users++
	}
	c.used += output
	c.pinned += output
	c.shrink()
}

// read makes a prompt reusable.
func (c *cache) read(chain []link) {
	for _, l := range chain {
		c.entries[l.hash].read = true
	}
}

// end gives the room back. Prompt and answer are remembered as long as nobody needs it. Its end is marked as used first, so
// that it is dropped before what it shares with others.
func (c *cache) end(chain []link, answer link) {
	output := answer.tokens - chain[len(chain)-1].tokens
	c.used -= output
	c.pinned -= output
	if c.entries[answer.hash] == nil {
		e := &entry{hash: answer.hash, added: output, read: true}
		e.at = c.order.PushFront(e)
		c.entries[answer.hash] = e
		c.used += output
	}
	for _, l := range slices.Backward(chain) {
		e := c.entries[l.hash]
		if e.users--; e.users == 0 {
			c.pinned -= e.added
			e.at = c.order.PushFront(e)
		}
	}
	c.shrink()
}

// shrink forgets what there is no room for.
func (c *cache) shrink() {
	for c.used > c.capacity && c.order.Len() > 0 {
		gone, _ := c.order.Remove(c.order.Back()).(*entry)
		delete(c.entries, gone.hash)
		c.used -= gone.added
	}
}

// added is what a link adds to the one before.
func added(chain []link, i int) int {
	if i == 0 {
		return chain[0].tokens
	}
	return chain[i].tokens - chain[i-1].tokens
}
