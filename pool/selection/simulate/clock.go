package main

import "container/heap"

// clock is the simulated time, in seconds, and what is going to happen. Events of one instant happen in the order in which
// they were planned, so that a run depends on nothing but its seed.
type clock struct {
	now    float64
	count  int
	events events
}

type event struct {
	at    float64
	order int
	do    func()
}

func (c *clock) after(seconds float64, do func()) {
	c.count++
	heap.Push(&c.events, event{c.now + max(seconds, 0), c.count, do})
}

// run lets everything happen that is planned, and what follows from it.
func (c *clock) run() {
	for len(c.events) > 0 {
		e, _ := heap.Pop(&c.events).(event)
		c.now = e.at
		e.do()
	}
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { added, _ := x.(event); *e = append(*e, added) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}
