package main

import (
	"container/heap"
	"slices"
)

// job is a request inside an engine. Exactly one of done and failed is called; started comes before done.
type job struct {
	chain  []link // the prompt
	answer link   // the prompt with its answer
	output int

	started func(held int)
	done    func()
	failed  func()

	finish float64 // in the engine's decoded tokens
	order  int
}

func (j *job) promptTokens() int { return j.chain[len(j.chain)-1].tokens }

// engine serves what it is sent: those beyond its slots wait, prompts are read one after the other, and the answers share
// the rest evenly.
type engine struct {
	machine
	clock *clock

	// life counts crashes, so that events of an earlier life are recognised.
	life int
	// frozen: it takes requests and does nothing. down: it takes none.
	frozen, down bool
	// slow is how many times slower it is than it should be.
	slow float64
	// warmAt is when its weights are in memory.
	warmAt float64

	all     map[*job]bool
	waiting []*job // for a slot
	running int64
	unread  []*job
	reading bool
	answers answers
	decoded float64 // tokens that an answer from the beginning would have by now
	since   float64
	planned int // which planned completion counts
	orders  int
	cache   *cache
}

func newEngine(m machine, c *clock) *engine {
	return &engine{machine: m, clock: c, slow: 1, all: map[*job]bool{}, cache: newCache(m.cache)}
}

// submit takes a job; false = nobody is there.
func (e *engine) submit(j *job) bool {
	if e.down {
		return false
	}
	e.all[j] = true
	e.orders++
	j.order = e.orders
	if e.running >= e.slots {
		e.waiting = append(e.waiting, j)
		return true
	}
	e.admit(j)
	return true
}

func (e *engine) admit(j *job) {
	e.running++
	e.unread = append(e.unread, j)
	e.read()
}

// later plans something that a crash prevents.
func (e *engine) later(seconds float64, do func()) {
	life := e.life
	e.clock.after(seconds, func() {
		if e.life == life {
			do()
		}
	})
}

func (e *engine) read() {
	if e.reading || e.frozen || len(e.unread) == 0 {
		return
	}
	j := e.unread[0]
	e.unread = e.unread[1:]
	e.reading = true
	// One token at least is read, or there is nothing to answer.
	held := min(e.cache.held(j.chain), j.promptTokens()-1)
	seconds := (e.overhead + float64(j.promptTokens()-held)/e.prefill) * e.slow
	e.later(max(e.warmAt-e.clock.now, 0)+seconds, func() {
		e.reading = false
		e.cache.keep(j.chain)
		e.advance()
		j.finish = e.decoded + float64(j.output)
		heap.Push(&e.answers, j)
		j.started(held)
		e.plan()
		e.read()
	})
}

// advance brings the answers up to now.
func (e *engine) advance() {
	if n := len(e.answers); n > 0 && !e.frozen {
		e.decoded += (e.clock.now - e.since) * e.rate(n) / e.slow
	}
	e.since = e.clock.now
}

// plan plans the next completion.
func (e *engine) plan() {
	e.planned++
	if len(e.answers) == 0 || e.frozen {
		return
	}
	planned := e.planned
	seconds := (e.answers[0].finish - e.decoded) / e.rate(len(e.answers)) * e.slow
	e.later(seconds, func() {
		if e.planned != planned {
			return
		}
		e.advance()
		j, _ := heap.Pop(&e.answers).(*job)
		e.cache.keep(append(slices.Clip(j.chain), j.answer))
		delete(e.all, j)
		e.running--
		if len(e.waiting) > 0 {
			next := e.waiting[0]
			e.waiting = e.waiting[1:]
			e.admit(next)
		}
		j.done()
		e.plan()
	})
}

// slowDown changes the speed of what is not yet being read.
func (e *engine) slowDown(slow float64) {
	e.advance()
	e.slow = slow
	e.plan()
}

// freeze stops everything, without anyone being told.
func (e *engine) freeze() {
	e.advance()
	e.frozen = true
	e.life++
}

// crash ends everything.
func (e *engine) crash() {
	e.life++
	e.down, e.frozen = true, false
	lost := make([]*job, 0, len(e.all))
	for j := range e.all {
		lost = append(lost, j)
	}
	sortJobs(lost)
	e.all, e.waiting, e.unread, e.answers = map[*job]bool{}, nil, nil, nil
	e.running, e.reading = 0, false
	e.cache = newCache(e.machine.cache)
	for _, j := range lost {
		j.failed()
	}
}

// restart brings it back, cold.
func (e *engine) restart() {
	e.down = false
	e.warmAt = e.clock.now + e.startup
	e.since = e.clock.now
}

// active is what its metrics page shows.
func (e *engine) active() int64 { return e.running }

// answers are ordered by the token at which they end.
type answers []*job

func (a answers) Len() int { return len(a) }
func (a answers) Less(i, k int) bool {
	return a[i].finish < a[k].finish || a[i].finish == a[k].finish && a[i].order < a[k].order
}
func (a answers) Swap(i, k int) { a[i], a[k] = a[k], a[i] }
func (a *answers) Push(x any)   { added, _ := x.(*job); *a = append(*a, added) }
func (a *answers) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
