// Command simulate compares ways to choose a node: the spec's smooth weighted round robin, the same with the corrected slot
// rule, least occupancy, and the design of package selection, which it drives as production does.
//
// It lets 12 unequal nodes with 194 slots serve four workloads, under heartbeats every 5 s, stragglers, crashes, freezes,
// drains and the load of others. Three gateways share what they share through Redis, and nothing else. For each workload,
// seed and load every policy gets the same requests and the same faults. A load is a share of what the fleet could serve if
// all slots that faults and others leave were busy all the time, and no prefix were ever held.
//
// There is a table for nodes that all have the default base weight, and one for an operator who has set weights in
// proportion to slots, the best that the plain algorithm can be told without measurements.
//
//	go run ./pool/selection/simulate             # the tables
//	go run ./pool/selection/simulate -details    # and every scenario by itself
//	go run ./pool/selection/simulate -faults 40  # with a fault somewhere every 40 s
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
	details   bool
}

var loads = []float64{0.5, 0.8, 0.95}

func main() {
	s := setting{}
	flag.IntVar(&s.seeds, "seeds", 3, "how many sets of random requests and faults")
	flag.Float64Var(&s.duration, "duration", 300, "how many seconds are counted, after a fifth as much to warm up")
	flag.Float64Var(&s.faultEvery, "faults", 120, "the mean time between faults in the whole fleet, in seconds; 0 = none")
	flag.BoolVar(&s.details, "details", false, "print every scenario, too")
	only := flag.String("workload", "", "only this workload")
	flag.Parse()
	s.workloads = slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return *only != "" && w.name != *only })
	for _, s.weighted = range []bool{false, true} {
		if err := simulate(os.Stdout, s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
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
	fmt.Fprintf(w, "\n%s; %d workloads, %d seeds; at loads of 50 / 80 / 95 %%; times are ratios to the first row\n",
		weights, len(under.workloads), under.seeds)
	if under.details {
		if err := details(w, scenarios); err != nil {
			return err
		}
	}
	return report(w, scenarios, under.workloads)
}

// play plays every scenario, as many at once as there are processors. Each depends on nothing but its seed.
func (s setting) play() []*scenario {
	scenarios := make([]*scenario, 0, len(s.workloads)*s.seeds*len(loads))
	for _, work := range s.workloads {
		for seed := range s.seeds {
			for _, load := range loads {
				scenarios = append(scenarios, &scenario{workload: work, seed: uint64(seed + 1), load: load})
			}
		}
	}
	next := make(chan *scenario, len(scenarios))
	for _, one := range scenarios {
		next <- one
	}
	close(next)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for one := range next {
				one.play(s)
			}
		})
	}
	workers.Wait()
	return scenarios
}

// play lets every policy serve the scenario.
func (s *scenario) play(under setting) {
	sessions := generate(s.workload, s.seed, s.load, under.end(), under)
	for _, p := range policies {
		r := newRun(p, s.seed, under)
		for _, session := range sessions {
			r.play(session)
		}
		r.run()
		s.figures = append(s.figures, r.outcome.figures())
		s.outcomes = append(s.outcomes, r.outcome)
	}
}

// warmUp is the part of the duration that comes before it.
const warmUp = 0.2

func (s setting) end() float64 { return s.duration * (1 + warmUp) }

// newRun prepares one policy's run, with everything in it but the requests.
func newRun(p policy, seed uint64, under setting) *run {
	r := &run{policy: p, from: under.duration * warmUp, to: under.end(), random: rand.New(rand.NewPCG(seed, 1000))}
	r.shared = newShared(&r.clock, under)
	for i := range r.gateways {
		r.gateways[i] = make([]selection.Pace, len(r.shared.nodes))
	}
	r.heartbeats(rand.New(rand.NewPCG(seed, 1001)))
	r.faults(rand.New(rand.NewPCG(seed, 1002)), under.faultEvery)
	r.foreigners(rand.New(rand.NewPCG(seed, 1003)))
	return r
}
