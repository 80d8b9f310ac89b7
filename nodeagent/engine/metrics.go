package engine

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// gauges names the series that say how busy an engine is. Of each list the first name that the page has counts: names
// change between versions, and during a change a page may have both. Colons are written as underscores, since some
// versions and collectors do so.
type gauges struct {
	active, queued []string
	// firstRankOnly takes one of several workers that each report the whole.
	firstRankOnly bool
}

var (
	vllmGauges = gauges{
		active: []string{"vllm_num_requests_running"},
		queued: []string{"vllm_num_requests_waiting", "vllm_num_requests_waiting_by_reason"},
	}
	// SGLang renamed its prefix from sglang: to sglang_, and its queue before that.
	sglangGauges = gauges{
		active:        []string{"sglang_num_running_reqs", "sglang_num_running_req"},
		queued:        []string{"sglang_num_queue_reqs", "sglang_num_waiting_reqs", "sglang_num_queue_req"},
		firstRankOnly: true,
	}
	tgiGauges = gauges{
		active: []string{"tgi_batch_current_size"},
		queued: []string{"tgi_queue_size"},
	}
	llamacppGauges = gauges{
		active: []string{"llamacpp_requests_processing"},
		queued: []string{"llamacpp_requests_deferred"},
	}
	genericGauges = gauges{
		active: append(append(append(append([]string{}, vllmGauges.active...), sglangGauges.active...),
			tgiGauges.active...), llamacppGauges.active...),
		queued: append(append(append(append([]string{}, vllmGauges.queued...), sglangGauges.queued...),
			tgiGauges.queued...), llamacppGauges.queued...),
		firstRankOnly: true,
	}
)

// read finds the gauges in a page of the Prometheus text format and adds up their series.
func (g gauges) read(page []byte) Load {
	sums := map[string]float64{}
	for line := range bytes.Lines(page) {
		name, labels, value, ok := parseSample(strings.TrimSpace(string(line)))
		if !ok || (g.firstRankOnly && !firstRank(labels)) {
			continue
		}
		sums[strings.ReplaceAll(name, ":", "_")] += value
	}
	return Load{Active: first(sums, g.active), Queued: first(sums, g.queued)}
}

// first is the sum of the first name that the page had; nil where it had none, or only nonsense.
func first(sums map[string]float64, names []string) *int32 {
	for _, name := range names {
		sum, found := sums[name]
		if !found {
			continue
		}
		if math.IsNaN(sum) || sum < 0 || sum > math.MaxInt32 {
			return nil
		}
		return new(int32(math.Round(sum)))
	}
	return nil
}

// parseSample splits `name{labels} value [timestamp]`. Comments and garbled lines are no samples.
func parseSample(line string) (name, labels string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", "", 0, false
	}
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 {
		return "", "", 0, false
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		length := labelsLength(rest)
		if length < 0 {
			return "", "", 0, false
		}
		labels, rest = rest[:length], rest[length:]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 {
		return "", "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return name, labels, value, err == nil
}

// labelsLength finds the closing brace, which a quoted label value may contain, too.
func labelsLength(text string) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}

// firstRank reports whether a series is of the first of the workers that share one model between them.
func firstRank(labels string) bool {
	for _, label := range []string{`tp_rank="`, `pp_rank="`} {
		if _, after, found := strings.Cut(labels, label); found && !strings.HasPrefix(after, `0"`) {
			return false
		}
	}
	return true
}
