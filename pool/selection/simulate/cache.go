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

// cache is an engine's prefix cache: the least recently used endings go first.
type cache struct {
	capacity, used int
	entries        map[uint64]*list.Element
	order          list.List // the most recently used in front
}

type cached struct {
	hash  uint64
	added int // tokens beyond the link before
}

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, entries: map[uint64]*list.Element{}}
}

// held is how many tokens of a prompt need not be read again.
func (c *cache) held(chain []link) int {
	tokens := 0
	for _, l := range chain {
		if c.entries[l.hash] == nil {
			break
		}
		tokens = l.tokens
	}
	return tokens
}

// keep remembers a prompt. Its end is marked as used first, so that it is dropped before what it shares with others.
func (c *cache) keep(chain []link) {
	for i, l := range slices.Backward(chain) {
		if e := c.entries[l.hash]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		added := l.tokens
		if i > 0 {
			added -= chain[i-1].tokens
		}
		c.entries[l.hash] = c.order.PushFront(cached{l.hash, added})
		c.used += added
	}
	for c.used > c.capacity {
		last := c.order.Back()
		gone, _ := c.order.Remove(last).(cached)
		delete(c.entries, gone.hash)
		c.used -= gone.added
	}
}
