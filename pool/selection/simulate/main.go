// Command simulate compares ways to choose a node: the spec's smooth weighted round robin, the same with the corrected slot
// rule, least occupancy, whoever knows the engines, consistent hashing with bounded loads, and the design of package selection.
//
// It lets 12 unequal nodes with 194 slots serve seven workloads, under heartbeats every 5 s, stragglers, crashes, freezes,
// drains and the load of others. Three gateways share a pool, package pool/memory under a simulated clock, which does what
// the one in Redis does, and nothing else: who waits, and how quickly nodes read, each knows by itself. They do what
// vendors/nodes does around it. For each workload, seed and load every policy gets the same requests and the same faults.
//
// A load is a share of what the fleet could serve if all slots, or all memory, were busy all the time but for faults and the
// load of others, and if it held as much of the prompts as it does under the first policy. No policy reaches that: work comes
// in bursts, and faults too. Spill is what share of the requests finds no slot in time and goes to the cloud; times are of the
// others.
//
//	go run ./pool/selection/simulate             # the table
//	go run ./pool/selection/simulate -all        # with more policies
//	go run ./pool/selection/simulate -weighted   # for an operator who has set weights in proportion to slots
//	go run ./pool/selection/simulate -details    # and every scenario by itself
//	go run ./pool/selection/simulate -faults 40  # with a fault somewhere every 40 s
//	go run ./pool/selection/simulate -load 70    # at another load
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ai-process/ktms/pool/selection"
)

// setting is what all scenarios of a table have in common.
type setting struct {
	seeds int
	// duration is how long requests are counted, in seconds, after a fifth as much to warm up.
	duration float64
	// faultEvery is the mean time between faults in the whole fleet, in seconds; 0 = none.
	faultEvery float64
	// weighted: base weights are in proportion to slots, not the default.
	weighted  bool
	workloads []workload
	policies  []policy
	loads     []float64
	details   bool
}

// usualLoads are those of the tables.
var usualLoads = []float64{0.5, 0.8, 0.95}

func main() {
	s := setting{loads: usualLoads, policies: everyPolicy}
	flag.IntVar(&s.seeds, "seeds", 3, "how many sets of random requests and faults")
	flag.Float64Var(&s.duration, "duration", 200, "how many seconds are counted, after some to warm up")
	flag.Float64Var(&s.faultEvery, "faults", 120, "the mean time between faults in the whole fleet, in seconds; 0 = none")
	flag.BoolVar(&s.details, "details", false, "print every scenario, too")
	flag.BoolVar(&s.weighted, "weighted", false, "base weights in proportion to slots, not the default for all")
	all := flag.Bool("all", false, "print all policies, not only the first, bounded hashing and the design")
	only := flag.String("workload", "", "only this workload")
	load := flag.Float64("load", 0, "only this load, in percent")
	flag.Parse()
	s.workloads = slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return *only != "" && w.name != *only })
	if !*all {
		s.policies = []policy{everyPolicy[0], everyPolicy[len(everyPolicy)-2], everyPolicy[len(everyPolicy)-1]}
	}
	if *load > 0 {
		s.loads = []float64{*load / 100}
	}
	if err := simulate(os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// simulate prints one table.
func simulate(w io.Writer, under setting) error {
	if len(under.workloads) == 0 || under.seeds < 1 || !(under.duration > 0) {
		return errors.New("nothing to do: give a workload that exists, at least one seed and a duration above 0")
	}
	scenarios := under.play()
	weights := "all base weights are the default"
	if under.weighted {
		weights = "base weights are in proportion to slots"
	}
	percents := make([]string, 0, len(under.loads))
	for _, load := range under.loads {
		percents = append(percents, fmt.Sprintf("%.0f", 100*load))
	}
	fmt.Fprintf(w, "%s; %d workloads, %d seeds; at loads of %s %%; times are ratios to the first row, the rest is in percent\n",
		weights, len(under.workloads), under.seeds, strings.Join(percents, " / "))
	if under.details {
		if err := under.printDetails(w, scenarios); err != nil {
			return err
		}
	}
	return under.report(w, scenarios)
}

// play plays every scenario, as many at once as there are processors. Each depends on nothing but its seed.
func (s setting) play() []*scenario {
	scenarios := make([]*scenario, 0, len(s.workloads)*s.seeds*len(s.loads))
	parts := make([]func(), 0, len(s.workloads)*s.seeds)
	for _, work := range s.workloads {
		for seed := range s.seeds {
			part := make([]*scenario, 0, len(s.loads))
			for _, load := range s.loads {
				part = append(part, &scenario{workload: work, seed: uint64(seed + 1), load: load})
			}
			scenarios = append(scenarios, part...)
			parts = append(parts, func() {
				capacity := s.measured(work, uint64(seed+1))
				for _, one := range part {
					one.play(s, capacity)
				}
			})
		}
	}
	next := make(chan func(), len(parts))
	for _, part := range parts {
		next <- part
	}
	close(next)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for part := range next {
				part()
			}
		})
	}
	workers.Wait()
	return scenarios
}

// measuredAt is the load at which it is measured how much of the prompts the first policy finds held.
const measuredAt = 0.8

// measured is how many requests per second the fleet can serve while it holds as much of the prompts as it does under the
// first policy.
func (s setting) measured(w workload, seed uint64) float64 {
	d := w.demand(seed)
	first := s.run(everyPolicy[0], w, seed, generate(w, seed, measuredAt*s.capacity(d), s.end()))
	d.held = d.prompt * first.outcome.figures().hits
	return s.capacity(d)
}

// play lets every policy serve the scenario.
func (s *scenario) play(under setting, capacity float64) {
	sessions := generate(s.workload, s.seed, s.load*capacity, under.end())
	for _, p := range under.policies {
		r := under.run(p, s.workload, s.seed, sessions)
		s.figures = append(s.figures, r.outcome.figures())
		s.outcomes = append(s.outcomes, r.outcome)
	}
}

// run lets a policy serve sessions.
func (s setting) run(p policy, w workload, seed uint64, sessions []*session) *run {
	r := newRun(p, w, seed, s)
	for _, session := range sessions {
		r.play(session)
	}
	r.run()
	return r
}

// warmUp is how long the caches, speeds and paces have to settle, in seconds.
const warmUp = 60

func (s setting) end() float64 { return s.duration + warmUp }

// newRun prepares one policy's run, with everything in it but the requests.
func newRun(p policy, w workload, seed uint64, under setting) *run {
	r := &run{policy: p, workload: w, from: warmUp, to: under.end(), random: rand.New(rand.NewPCG(seed, 1000)), at: map[string]int{}}
	r.shared, r.nodes = newPool(&r.clock, under)
	for _, n := range r.nodes {
		r.at[n.id] = len(r.ids)
		r.ids = append(r.ids, n.id)
		r.outcome.offered += float64(n.engine.slots) * under.duration
	}
	for i := range r.gateways {
		r.gateways[i].paces = map[string]selection.Pace{}
	}
	r.heartbeats(rand.New(rand.NewPCG(seed, 1001)))
	r.faults(rand.New(rand.NewPCG(seed, 1002)), under.faultEvery)
	r.foreigners(rand.New(rand.NewPCG(seed, 1003)))
	return r
}
