package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// outcome is what came of the requests that are counted. Times are in seconds since they arrived at the gateway, of those
// that a node answered.
type outcome struct {
	requests, spilled, broken, overbooked int
	prompt, held                          int // tokens
	ttft, whole                           []float64
	// busy is how many seconds slots were taken by requests, of those that there were on all machines.
	busy, offered float64
}

// figures are an outcome in numbers.
type figures struct{ p99TTFT, p50TTFT, p99Whole, spill, hits, busy float64 }

func (o *outcome) figures() figures {
	return figures{
		p99TTFT: percentile(o.ttft, 0.99), p50TTFT: percentile(o.ttft, 0.5), p99Whole: percentile(o.whole, 0.99),
		spill: ratio(o.spilled, o.requests), hits: ratio(o.held, o.prompt),
		busy: o.busy / o.offered,
	}
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// scenario is one set of requests and faults, and what each policy made of it.
type scenario struct {
	workload workload
	seed     uint64
	load     float64
	figures  []figures // in the order of policies
	outcomes []outcome
}

// report prints the ratios to the first policy, as geometric means at each load, and shares as plain means: over all
// workloads for each policy, and by workload for the last one.
func (under setting) report(w io.Writer, scenarios []*scenario) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\tp99 TTFT\tp50 TTFT\tp99 end-to-end\tspill\tprefix hits\tslots busy\n")
	for i, p := range under.policies {
		fmt.Fprintf(table, "%s\t%s\n", p.name, strings.Join(under.cells(scenarios, i), "\t"))
	}
	last := len(under.policies) - 1
	for _, work := range under.workloads {
		of := slices.DeleteFunc(slices.Clone(scenarios), func(s *scenario) bool { return s.workload.name != work.name })
		fmt.Fprintf(table, "  with %s\t%s\n", work.name, strings.Join(under.cells(of, last), "\t"))
	}
	return table.Flush()
}

// cells are the figures of a policy, each at every load.
func (under setting) cells(scenarios []*scenario, policy int) []string {
	return []string{
		under.ratios(scenarios, policy, func(f figures) float64 { return f.p99TTFT }),
		under.ratios(scenarios, policy, func(f figures) float64 { return f.p50TTFT }),
		under.ratios(scenarios, policy, func(f figures) float64 { return f.p99Whole }),
		under.shares(scenarios, policy, func(f figures) float64 { return f.spill }),
		under.shares(scenarios, policy, func(f figures) float64 { return f.hits }),
		under.shares(scenarios, policy, func(f figures) float64 { return f.busy }),
	}
}

func (under setting) ratios(scenarios []*scenario, policy int, of func(figures) float64) string {
	return under.atLoads(scenarios, "%.2f", func(s *scenario) float64 {
		return math.Log(of(s.figures[policy]) / of(s.figures[0]))
	}, math.Exp)
}

func (under setting) shares(scenarios []*scenario, policy int, of func(figures) float64) string {
	return under.atLoads(scenarios, "%.1f", func(s *scenario) float64 { return 100 * of(s.figures[policy]) },
		func(mean float64) float64 { return mean })
}

// atLoads prints the mean of a value at each load.
func (under setting) atLoads(scenarios []*scenario, format string, value func(*scenario) float64, finish func(float64) float64) string {
	texts := make([]string, 0, len(under.loads))
	for _, load := range under.loads {
		sum, count := 0.0, 0.0
		for _, s := range scenarios {
			if s.load == load {
				sum += value(s)
				count++
			}
		}
		texts = append(texts, fmt.Sprintf(format, finish(sum/count)))
	}
	return strings.Join(texts, " / ")
}

// printDetails prints every scenario by itself, in seconds and percent.
func (under setting) printDetails(w io.Writer, scenarios []*scenario) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "workload\tseed\tload\tpolicy\trequests\tp99 TTFT\tp50 TTFT\tp99 end-to-end\tspill\thits\tbusy\tbroken\toverbooked\t\n")
	for _, s := range scenarios {
		for i, p := range under.policies {
			f, o := s.figures[i], s.outcomes[i]
			fmt.Fprintf(table, "%s\t%d\t%.0f%%\t%s\t%d\t%.2f\t%.3f\t%.1f\t%.1f%%\t%.0f%%\t%.0f%%\t%d\t%d\t\n", s.workload.name, s.seed,
				100*s.load, p.name, o.requests, f.p99TTFT, f.p50TTFT, f.p99Whole, 100*f.spill, 100*f.hits, 100*f.busy, o.broken, o.overbooked)
		}
	}
	return table.Flush()
}
