package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// short is a setting of seconds.
func short() setting {
	return setting{seeds: 1, duration: 150, faultEvery: 15, workloads: workloads}
}

// TestSeedDecides: the same seed gives the same figures, to the last digit, and another seed others.
func TestSeedDecides(t *testing.T) {
	t.Parallel()
	text := func(under setting) string {
		var b strings.Builder
		under.details, under.workloads = true, workloads[2:]
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
		s.play(short())
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
		for i, p := range policies {
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
			if least := fleet[0].overhead; o.ttft[0] < least || f.p50TTFT < least {
				t.Errorf("%s: a first token came sooner than the quickest machine gives one", where)
			}
		}
	}
}

// TestLeasesEnd: when all is over nothing is occupied, queued or waiting.
func TestLeasesEnd(t *testing.T) {
	t.Parallel()
	under := short()
	for _, p := range policies {
		r := newRun(p, 1, under)
		for _, s := range generate(workloads[1], 1, 0.95, r.to, under) {
			r.play(s)
		}
		r.run()
		if r.shared.waiting != 0 {
			t.Errorf("%s: %d are still in line", p.name, r.shared.waiting)
		}
		for _, n := range r.shared.nodes {
			if n.inFlight != 0 || n.queued != 0 || len(n.calls) != 0 || n.engine.running != 0 && !n.engine.frozen {
				t.Errorf("%s: %s has %d leases, %d queued tokens, %d calls and %d running",
					p.name, n.id, n.inFlight, n.queued, len(n.calls), n.engine.running)
			}
		}
	}
}

// TestCache: what is used together is held together, and the oldest endings go first.
func TestCache(t *testing.T) {
	t.Parallel()
	c := newCache(100)
	head := link{1, 40}
	a, b := []link{head, {2, 70}}, []link{head, {3, 70}}
	c.keep(a)
	c.keep(b)
	if c.held(a) != 70 || c.held(b) != 70 {
		t.Errorf("holds %d and %d, want both whole", c.held(a), c.held(b))
	}
	c.keep([]link{head, {4, 50}})
	if c.held(a) != 40 || c.held(b) != 70 {
		t.Errorf("holds %d of the older and %d of the newer, want 40 and 70", c.held(a), c.held(b))
	}
	if c.used > c.capacity {
		t.Errorf("holds %d tokens, has room for %d", c.used, c.capacity)
	}
}
