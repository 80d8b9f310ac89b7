package engine

import (
	"os"
	"path/filepath"
	"testing"
)

func number(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// TestMetricsPages reads pages of several versions; -1 stands for "not reported".
func TestMetricsPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file           string
		names          gauges
		active, queued int32
	}{
		{"vllm-2026.prom", vllmGauges, 2, 1},
		{"vllm-v0-2024.prom", vllmGauges, 3, 7},
		{"vllm-dp-2026.prom", vllmGauges, 7, 3},
		{"tgi-3.prom", tgiGauges, 4, 3},
		{"sglang-old.prom", sglangGauges, 4, 9},
		{"sglang-new.prom", sglangGauges, 2, 0},
		{"llamacpp-b10472.prom", llamacppGauges, 2, 1},
		{"llamacpp-2024.prom", llamacppGauges, 0, 0},
		{"vllm-v1-2025.prom", vllmGauges, 11, 0},
		{"vllm-by-reason-2026.prom", vllmGauges, 7, 3},
		{"tgi-1-2023.prom", tgiGauges, 0, 0},
		{"sglang-2024.prom", sglangGauges, 162, 2826},
		{"sglang-dp-2026.prom", sglangGauges, 7, 4},
		{"sglang-priority-2026.prom", sglangGauges, 14, 2},
		{"llamacpp-2026.prom", llamacppGauges, 1, 3},
		{"vllm-2026.prom", genericGauges, 2, 1},
		{"vllm-dp-2026.prom", genericGauges, 7, 3},
		{"sglang-dp-2026.prom", genericGauges, 7, 4},
		{"llamacpp-2026.prom", genericGauges, 1, 3},
		{"sglang-old.prom", genericGauges, 4, 9},
		{"tgi-3.prom", vllmGauges, -1, -1},
	} {
		page, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		got := c.names.read(page)
		if number(got.Active) != c.active || number(got.Queued) != c.queued {
			t.Errorf("%s: active %d, queued %d, want %d and %d", c.file, number(got.Active), number(got.Queued), c.active, c.queued)
		}
	}
}

// TestMetricsNonsense makes unknown of what is no number of requests.
func TestMetricsNonsense(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		"", "# nothing\n", "vllm:num_requests_running", "vllm:num_requests_running{", `vllm:num_requests_running{a="}`,
		"vllm:num_requests_running{} x", "vllm:num_requests_running NaN", "vllm:num_requests_running +Inf",
		"vllm:num_requests_running -3", "vllm:num_requests_running 1e300", "vllm:num_requests_running 1 2 3",
		"vllm:num_requests_running_total 4", "<html>vllm:num_requests_running 4</html>", "\xff\xfe\x00",
	} {
		if got := vllmGauges.read([]byte(page)); got.Active != nil || got.Queued != nil {
			t.Errorf("%q: active %d, queued %d, want neither", page, number(got.Active), number(got.Queued))
		}
	}
}

// TestMetricsSpelling reads what the text format allows and writers seldom use.
func TestMetricsSpelling(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"vllm:num_requests_running 3", "vllm_num_requests_running 3", "vllm:num_requests_running\t3", "  vllm:num_requests_running   3  1796005467000\r",
		`vllm:num_requests_running {model_name="m"} 3`, `vllm:num_requests_running{model_name="m",} 3`, `vllm:num_requests_running{ model_name = "m" }3`,
		`vllm:num_requests_running{model_name="a \"}, tp_rank=\"9\" "} 3.0`, "vllm:num_requests_running{} +3e0", "vllm:num_requests_running 0x3p0",
		`vllm:num_requests_running{a="1"} 1` + "\n" + `vllm:num_requests_running{a="2"} 2`,
	} {
		if got := vllmGauges.read([]byte("# TYPE x gauge\n" + line + "\n# EOF")); number(got.Active) != 3 {
			t.Errorf("%q: active %d, want 3", line, number(got.Active))
		}
	}
}

func FuzzParseSample(f *testing.F) {
	for _, line := range []string{"a 1", `a{b="c"} 2 3`, `a{b="\"}"} 1`, "{} 1", "a{", "#"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		name, labels, _, ok := parseSample(line)
		if ok && (name == "" || len(name)+len(labels) >= len(line)) {
			t.Errorf("%q: name %q, labels %q", line, name, labels)
		}
	})
}
