// Command simulate compares ways to choose a node: the spec's smooth weighted round robin, the same with the corrected slot
// rule, least occupancy, and the design of package selection, which it drives as production does.
//
// It lets 12 unequal nodes with 194 slots serve four workloads, under heartbeats every 5 s, stragglers, crashes, freezes,
// drains and the load of others. Three gateways share what they share through Redis, and nothing else. For each workload,
// seed and load every policy gets the same requests and the same faults. A load is the share of the requests that the fleet
// could serve if all its slots were busy all the time, with no prefix ever held.
//
//	go run ./pool/selection/simulate            # the table, in a minute or two
//	go run ./pool/selection/simulate -details   # and every scenario by itself
package main

import (
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

func main() {
	seeds := flag.Int("seeds", 3, "how many sets of random requests and faults")
	duration := flag.Float64("duration", 600, "how many seconds are counted, after a fifth as much to warm up")
	only := flag.String("workload", "", "only this workload")
	detailed := flag.Bool("details", false, "print every scenario, too")
	flag.Parse()
	if err := simulate(os.Stdout, *seeds, *duration, *only, *detailed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

var loads = []float64{0.5, 0.8, 0.95}

func simulate(w io.Writer, seeds int, duration float64, only string, detailed bool) error {
	chosen := workloads
	if only != "" {
		chosen = slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return w.name != only })
	}
	if len(chosen) == 0 || seeds < 1 || !(duration > 0) {
		return fmt.Errorf("nothing to do: give a workload that exists, at least one seed and a duration above 0")
	}
	var scenarios []*scenario
	for _, work := range chosen {
		for seed := range seeds {
			for _, load := range loads {
				scenarios = append(scenarios, &scenario{workload: work, seed: uint64(seed + 1), load: load})
			}
		}
	}
	next := make(chan *scenario, len(scenarios))
	for _, s := range scenarios {
		next <- s
	}
	close(next)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range next {
				s.play(duration)
			}
		})
	}
	workers.Wait()
	if detailed {
		details(w, scenarios)
	}
	fmt.Fprintf(w, "%d workloads, %d seeds; times are ratios to the first row; each at loads of 50 / 80 / 95 %%\n", len(chosen), seeds)
	report(w, scenarios, loads)
	return nil
}

// play lets every policy serve the scenario.
func (s *scenario) play(duration float64) {
	warmUp := duration / 5
	sessions := generate(s.workload, s.seed, s.load, warmUp+duration)
	for _, p := range policies {
		r := &run{policy: p, from: warmUp, to: warmUp + duration, random: rand.New(rand.NewPCG(s.seed, 1000))}
		r.shared = newShared(&r.clock)
		for i := range r.gateways {
			r.gateways[i] = make([]selection.Pace, len(r.shared.nodes))
		}
		r.heartbeats(rand.New(rand.NewPCG(s.seed, 1001)))
		r.faults(rand.New(rand.NewPCG(s.seed, 1002)))
		r.foreigners(rand.New(rand.NewPCG(s.seed, 1003)))
		for _, session := range sessions {
			r.play(session)
		}
		r.run()
		s.figures = append(s.figures, r.outcome.figures())
		s.outcomes = append(s.outcomes, r.outcome)
	}
}
