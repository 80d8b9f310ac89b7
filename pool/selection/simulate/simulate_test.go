package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ai-process/ktms/pool/selection"
)

// short is a setting of seconds, with many faults.
func short() setting {
	return setting{seeds: 1, duration: 40, faultEvery: 15, workloads: workloads, policies: everyPolicy, loads: []float64{0.95}}
}

// TestSeedDecides: the same seed gives the same figures, to the last digit, and another seed others.
func TestSeedDecides(t *testing.T) {
	t.Parallel()
	text := func(under setting) string {
		var b strings.Builder
		under.details, under.workloads = true, workloads[2:3]
		if err := simulate(&b, under); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if a, b := text(short()), text(short()); a != b {
		t.Errorf("the same seed gave\n%s\nand\n%s", a, b)
	}
	one := func(seed uint64) []figures {
		s := &scenario{workload: workloads[0], seed: seed, load: 0.5}
		s.play(short(), 10)
		return s.figures
	}
	if fmt.Sprint(one(1)) == fmt.Sprint(one(2)) {
		t.Error("two seeds gave the same figures")
	}
}

// TestNothingIsLost holds every policy, in every scenario, to what has to be true whoever chooses.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	for _, s := range short().play() {
		for i, p := range everyPolicy {
			o, f := s.outcomes[i], s.figures[i]
			where := fmt.Sprintf("%s at %.0f %% under %s", s.workload.name, 100*s.load, p.name)
			if o.overbooked != 0 {
				t.Errorf("%s: %d requests were sent to full nodes", where, o.overbooked)
			}
			// A request that was cut after its first token has a TTFT and no end.
			if o.requests == 0 || len(o.whole)+o.broken+o.spilled != o.requests {
				t.Errorf("%s: %d requests, of which %d were answered, %d cut and %d spilled",
					where, o.requests, len(o.whole), o.broken, o.spilled)
			}
			if len(o.ttft) != len(o.whole)+o.broken {
				t.Errorf("%s: %d first tokens and %d ends", where, len(o.ttft), len(o.whole)+o.broken)
			}
			if f.hits < 0 || f.hits >= 1 || !(f.p50TTFT > 0) || f.p50TTFT > f.p99TTFT || math.IsInf(f.p99Whole, 0) {
				t.Errorf("%s: figures %+v", where, f)
			}
			if f.busy <= 0 || f.busy > 1 {
				t.Errorf("%s: %.0f %% of the slots were busy", where, 100*f.busy)
			}
			for _, ttft := range o.ttft {
				if ttft < fleet[0].overhead {
					t.Fatalf("%s: a first token came sooner than the quickest machine gives one", where)
				}
			}
		}
	}
}

// TestAllEnds: when all is over nothing is occupied, queued, waiting or in memory for good.
func TestAllEnds(t *testing.T) {
	t.Parallel()
	under := short()
	for _, p := range everyPolicy {
		w := workloads[1]
		r := under.run(p, w, 1, generate(w, 1, 20, under.end()))
		for i := range r.gateways {
			if waiting := len(r.gateways[i].line); waiting != 0 {
				t.Errorf("%s: %d are still in line", p.name, waiting)
			}
		}
		for i, load := range r.loads() {
			n := r.nodes[i]
			if load.InFlight != 0 || load.Queued != 0 || len(n.calls) != 0 {
				t.Errorf("%s: %s has %d leases, %d queued tokens and %d calls", p.name, n.id, load.InFlight, load.Queued, len(n.calls))
			}
			if e := n.engine; e.running != 0 || len(e.waiting) != 0 || e.cache.pinned != 0 || e.cache.used > e.cache.capacity {
				t.Errorf("%s: %s runs %d, %d wait, %d of %d tokens are pinned", p.name, n.id, e.running, len(e.waiting), e.cache.pinned, e.cache.used)
			}
		}
	}
}

// TestLoadIsSteady: as many requests come in the first minutes as in later ones, though sessions last long.
func TestLoadIsSteady(t *testing.T) {
	t.Parallel()
	const duration = 600
	early, late := 0, 0
	for _, s := range generate(workloads[1], 1, 20, duration) {
		at := s.start
		for i := s.first; i < len(s.turns); i++ {
			if i > s.first {
				at += s.turns[i].pause
			}
			switch {
			case at < duration/4:
				early++
			case at >= duration*3/4 && at < duration:
				late++
			}
			at += float64(s.turns[i].answer.tokens) / usualTPS
		}
	}
	if ratio := float64(early) / float64(late); ratio < 0.8 || ratio > 1.25 {
		t.Errorf("%d requests in the first quarter, %d in the last", early, late)
	}
}

// TestSharing: what is read slows down what is written, and the other way round.
func TestSharing(t *testing.T) {
	t.Parallel()
	c := &clock{}
	e := newEngine(machine{slots: 4, prefill: 1000, chunk: 1000, single: 10, full: 10, cache: 10_000}, c)
	at := map[string]float64{}
	send := func(name string, id uint64) {
		j := &job{
			chain: []link{{id, 1000}}, answer: link{id + 100, 1030}, output: 30,
			started: func(int) { at[name+" began"] = c.now }, done: func() { at[name+" ended"] = c.now },
		}
		if !e.submit(j) {
			t.Error("nobody is there")
		}
	}
	c.after(0, func() { send("a", 1) })
	c.after(1.05, func() { send("b", 2) })
	c.run()
	// b joins after a step of 0.1 s; the one that reads it takes a second more, and gives a its one token.
	for what, want := range map[string]float64{"a began": 1, "b began": 2.25, "a ended": 5, "b ended": 5.25} {
		if math.Abs(at[what]-want) > 1e-6 {
			t.Errorf("%s after %.3f s, want %.3f", what, at[what], want)
		}
	}
}

// TestMemory: those wait that there is no room for, and what runs is not forgotten.
func TestMemory(t *testing.T) {
	t.Parallel()
	c := newCache(100)
	head := link{1, 40}
	a, b := []link{head, {2, 70}}, []link{head, {3, 60}}
	c.begin(a, 10)
	if c.held(a) != 0 {
		t.Error("holds what is not read yet")
	}
	c.read(a)
	if c.fits(b, 10) || !c.fits(b, 0) {
		t.Errorf("%d of %d tokens are pinned, and 20 more fit where 30 do not", c.pinned, c.capacity)
	}
	c.end(a, link{4, 80})
	if c.held(append(a, link{4, 80})) != 80 || c.pinned != 0 {
		t.Errorf("holds %d tokens of a conversation that was just there, %d pinned", c.held(append(a, link{4, 80})), c.pinned)
	}
	c.begin(b, 25)
	c.read(b)
	if c.held(a) != 40 || c.held(b) != 60 || c.used != 85 {
		t.Errorf("holds %d of the older and %d of the newer, want 40 and 60", c.held(a), c.held(b))
	}
}

// TestBoundedHashing: a conversation stays where it was, until that node is much fuller than the others.
func TestBoundedHashing(t *testing.T) {
	t.Parallel()
	var talk *session
	for _, s := range generate(workloads[1], 1, 1, 10) {
		if len(s.turns) > 2 {
			talk = s
		}
	}
	free := make([]selection.Candidate, 8)
	for i := range free {
		free[i] = selection.Candidate{Node: fmt.Sprint("node-", i), Max: 10, Slots: 10, InFlight: 2}
	}
	home := hashed(nil, free, talk.turns[0])
	if again := hashed(nil, free, talk.turns[2]); again != home {
		t.Errorf("it went from %s to %s", free[home].Node, free[again].Node)
	}
	free[home].InFlight = 8
	if hashed(nil, free, talk.turns[2]) == home {
		t.Error("it stayed on a node that was much fuller than the others")
	}
}
