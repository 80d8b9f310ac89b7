package engine

import (
	"bytes"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// gauges names the series that say how busy an engine is. Of each list the first name that the page has counts: names
// change between versions, and during a change a page may have both. Colons are written as underscores, since some
// versions and collectors do so.
type gauges struct{ active, queued []string }

var (
	vllmGauges = gauges{
		active: []string{"vllm_num_requests_running"},
		queued: []string{"vllm_num_requests_waiting", "vllm_num_requests_waiting_by_reason"},
	}
	// SGLang renamed its prefix from sglang: to sglang_, and its queue before that.
	sglangGauges = gauges{
		active: []string{"sglang_num_running_reqs", "sglang_num_running_req"},
		queued: []string{"sglang_num_queue_reqs", "sglang_num_waiting_reqs", "sglang_num_queue_req"},
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
	}
)

// workers are the labels of workers that share one model between them: each of them reports the whole.
var workers = []string{"tp_rank", "pp_rank", "moe_ep_rank"}

// part names a label whose values are parts of a sum that the page has, too, with the empty value.
const part = "priority"

// series is a name with the labels that tell independent counts apart, like those of data-parallel engines.
type series struct{ name, labels string }

// read finds the gauges in a page of the Prometheus text format and adds up their series.
func (g gauges) read(page []byte) Load {
	values := map[series]float64{}
	for line := range bytes.Lines(page) {
		name, labels, value, ok := parseSample(strings.TrimSpace(string(line)))
		name = strings.ReplaceAll(name, ":", "_")
		if !ok || (!slices.Contains(g.active, name) && !slices.Contains(g.queued, name)) {
			continue
		}
		rest, isPart := independent(labels)
		if isPart {
			continue
		}
		key := series{name, rest}
		if had, found := values[key]; found {
			value = math.Max(had, value)
		}
		values[key] = value
	}
	sums := map[string]float64{}
	for key, value := range values {
		sums[key.name] += value
	}
	return Load{Active: first(sums, g.active), Queued: first(sums, g.queued)}
}

// independent leaves the labels of workers out. It reports whether the series is a part of another one.
func independent(labels string) (rest string, isPart bool) {
	var kept strings.Builder
	for name, value := range eachLabel(labels) {
		if name == part && value != "" {
			isPart = true
		}
		if !slices.Contains(workers, name) {
			kept.WriteString(name + "=" + strconv.Quote(value) + ",")
		}
	}
	return kept.String(), isPart
}

// eachLabel visits the names and the values, as they are written, of {a="b",c="d"}.
func eachLabel(labels string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		rest := strings.TrimSuffix(strings.TrimPrefix(labels, "{"), "}")
		for {
			name, after, found := strings.Cut(rest, `"`)
			if !found {
				return
			}
			end := quoteEnd(after)
			if end < 0 {
				return
			}
			if !yield(strings.Trim(name, ", \t="), after[:end]) {
				return
			}
			rest = after[end+1:]
		}
	}
}

// quoteEnd finds the quotation mark that ends a value.
func quoteEnd(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
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
	name, rest := line[:end], strings.TrimLeft(line[end:], " \t")
	if strings.HasPrefix(rest, "{") {
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
