package main

import (
	"container/heap"
	"math"
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

	opened bool // its turn to be read has come
	begun  bool // its answer has
	unread float64
	held   int
	finish float64 // in the engine's decoded tokens
	order  int
}

func (j *job) promptTokens() int { return j.chain[len(j.chain)-1].tokens }

// engine serves what it is sent, as vLLM and llama-server do. It works in steps that it shares between reading and writing:
// in each every answer gets one token, and the rest of the step's tokens reads prompts, one after the other. So whoever
// reads slows down those that write, and the other way round. Requests beyond its slots or its memory wait.
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
	waiting []*job // for a slot, or for room
	running int64
	unread  []*job
	answers answers
	decoded float64 // tokens that an answer from the beginning would have by now
	since   float64
	planned int // which planned event counts
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
	e.waiting = append(e.waiting, j)
	e.admit()
	return true
}

// admit lets those in that there is a slot and room for. What is too large for the memory of the machine runs alone.
func (e *engine) admit() {
	for len(e.waiting) > 0 && e.running < e.slots {
		j := e.waiting[0]
		if e.running > 0 && !e.cache.fits(j.chain, j.output) {
			return
		}
		e.waiting = e.waiting[1:]
		e.running++
		e.cache.begin(j.chain, j.output)
		// It is on its way for a while, and joins at the end of the step that runs then.
		e.later(e.overhead+e.step()*e.slow, func() {
			e.advance()
			e.unread = append(e.unread, j)
			e.plan()
		})
	}
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

// step is how long one takes in which nothing is read, in seconds.
func (e *engine) step() float64 {
	if len(e.answers) == 0 {
		return 0
	}
	return 1 / e.rate(len(e.answers))
}

// speeds are the tokens per second that are read, and that each answer gets.
func (e *engine) speeds() (reading, writing float64) {
	step := e.step()
	if len(e.unread) > 0 {
		full := step + e.chunk/e.prefill
		return e.chunk / full / e.slow, 1 / full / e.slow
	}
	if step == 0 {
		return 0, 0
	}
	return 0, 1 / step / e.slow
}

// advance brings reading and answers up to now.
func (e *engine) advance() {
	seconds := e.clock.now - max(e.since, e.warmAt)
	e.since = e.clock.now
	if e.frozen || seconds <= 0 {
		return
	}
	reading, writing := e.speeds()
	if len(e.unread) > 0 {
		e.unread[0].unread -= seconds * reading
	}
	e.decoded += seconds * writing
}

// open looks up what of a prompt there is to read, when its turn comes.
func (e *engine) open(j *job) {
	if !j.opened {
		j.opened = true
		// One token at least is read, or there is nothing to answer.
		j.held = min(e.cache.held(j.chain), j.promptTokens()-1)
		j.unread = float64(j.promptTokens() - j.held)
	}
}

// plan plans what comes next: a prompt is read, or an answer complete.
func (e *engine) plan() {
	e.planned++
	if e.frozen || len(e.unread) == 0 && len(e.answers) == 0 {
		return
	}
	planned := e.planned
	reading, writing := e.speeds()
	seconds, next := 0.0, e.complete
	if len(e.answers) > 0 {
		seconds = (e.answers[0].finish - e.decoded) / writing
	}
	if len(e.unread) > 0 {
		j := e.unread[0]
		e.open(j)
		if s := j.unread / reading; len(e.answers) == 0 || s < seconds {
			seconds, next = s, e.begin
		}
	}
	e.later(max(e.warmAt-e.clock.now, 0)+max(seconds, 0), func() {
		if e.planned == planned {
			e.advance()
			next()
			e.plan()
		}
	})
}

// begin lets the answer begin whose prompt is read.
func (e *engine) begin() {
	j := e.unread[0]
	e.unread = e.unread[1:]
	e.cache.read(j.chain)
	j.begun = true
	j.finish = e.decoded + float64(j.output)
	heap.Push(&e.answers, j)
	j.started(j.held)
}

// complete ends the answer that has all its tokens.
func (e *engine) complete() {
	j, _ := heap.Pop(&e.answers).(*job)
	e.cache.end(j.chain, j.answer)
	delete(e.all, j)
	e.running--
	e.admit()
	j.done()
}

// firstToken is how long it would take for a prompt that came now, in seconds.
func (e *engine) firstToken(chain []link) float64 {
	if e.down || e.frozen {
		return math.Inf(1)
	}
	tokens := chain[len(chain)-1].tokens - e.cache.held(chain)
	for j := range e.all {
		switch {
		case j.begun:
		case j.opened:
			tokens += int(j.unread)
		default:
			tokens += j.promptTokens() - e.cache.held(j.chain)
		}
	}
	step := e.step()
	reading := float64(tokens) * (1/e.prefill + step/e.chunk)
	return max(e.warmAt-e.clock.now, 0) + e.overhead + (step+reading)*e.slow
}

// slowDown changes its speed.
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
	e.running = 0
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

func sortJobs(jobs []*job) {
	slices.SortFunc(jobs, func(a, b *job) int { return a.order - b.order })
}

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
	(*a)[len(*a)-1] = nil
	*a = (*a)[:len(*a)-1]
	return last
}
