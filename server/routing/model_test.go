package routing_test

import (
	"errors"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
)

func TestParseModel(t *testing.T) {
	for _, test := range []struct {
		model string
		want  routing.Choice
	}{
		{"", routing.Choice{}},
		{"auto", routing.Choice{}},
		{"auto:low", routing.Choice{Effort: low}},
		{"auto:medium", routing.Choice{Effort: medium}},
		{"auto:high", routing.Choice{Effort: high}},
		{"auto:nodes-first", routing.Choice{Placement: routing.NodesFirst}},
		{"auto:nodes-only", routing.Choice{Placement: routing.NodesOnly}},
		{"auto:cloud-first", routing.Choice{Placement: routing.CloudFirst}},
		{"auto:cloud-only", routing.Choice{Placement: routing.CloudOnly}},
		{"auto:nodes_first", routing.Choice{Placement: routing.NodesFirst}},
		{"auto:nodes", routing.Choice{Placement: routing.NodesOnly}},
		{"auto:private", routing.Choice{Placement: routing.NodesOnly}},
		{"auto:self_hosted", routing.Choice{Placement: routing.NodesOnly}},
		{"auto:self-hosted", routing.Choice{Placement: routing.NodesOnly}},
		{"auto:nodes-only:high", routing.Choice{Placement: routing.NodesOnly, Effort: high}},
		{"auto:private:low", routing.Choice{Placement: routing.NodesOnly, Effort: low}},
		{"auto:cloud_only:medium", routing.Choice{Placement: routing.CloudOnly, Effort: medium}},
		{"gpt-4o-mini", routing.Choice{Exact: "gpt-4o-mini"}},
		{"gemma4:26b-a4b-it-qat", routing.Choice{Exact: "gemma4:26b-a4b-it-qat"}},
		{"automatic", routing.Choice{Exact: "automatic"}},
		{"openrouter/auto", routing.Choice{Exact: "openrouter/auto"}},
		{"Auto", routing.Choice{Exact: "Auto"}},
		{"low", routing.Choice{Exact: "low"}},
	} {
		if got, err := routing.ParseModel(test.model); err != nil || got != test.want {
			t.Errorf("%q: got %+v, %v; want %+v", test.model, got, err, test.want)
		}
	}
	for _, model := range []string{
		"auto:", "auto::", "auto:best", "auto:high:nodes-only", "auto:low:low", "auto:nodes-only:", "auto:nodes-only:max",
		"auto:minimal", "auto: low", "auto:LOW", "auto:nodes-only:high:x", "auto:nodes-only:nodes-only",
	} {
		got, err := routing.ParseModel(model)
		var e *status.Error
		if !errors.As(err, &e) || e.Reason != status.BadRequest || e.Param != "model" || got != (routing.Choice{}) ||
			!strings.Contains(e.Text, "auto:<placement>:<effort>") {
			t.Errorf("%q: got %+v, %v; want the grammar", model, got, err)
		}
	}
}

func TestParsePlacement(t *testing.T) {
	for s, want := range map[string]routing.Placement{
		"": "", "nodes_first": routing.NodesFirst, "nodes-first": routing.NodesFirst, "nodes_only": routing.NodesOnly,
		"nodes-only": routing.NodesOnly, "nodes": routing.NodesOnly, "private": routing.NodesOnly,
		"self_hosted": routing.NodesOnly, "self-hosted": routing.NodesOnly, "cloud_first": routing.CloudFirst,
		"cloud-first": routing.CloudFirst, "cloud_only": routing.CloudOnly, "cloud-only": routing.CloudOnly,
	} {
		if got, err := routing.ParsePlacement(s); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", s, got, err, want)
		}
	}
	for _, s := range []string{"cloud", "NODES", " nodes", "nodes_first,cloud_first", "auto"} {
		got, err := routing.ParsePlacement(s)
		var e *status.Error
		if !errors.As(err, &e) || e.Reason != status.BadRequest || e.Param != "placement" || got != "" {
			t.Errorf("%q: got %q, %v; want a bad request", s, got, err)
		}
	}
}

func TestParseEffort(t *testing.T) {
	for s, want := range map[string]ktmsv1.Effort{
		"": unspecified, "none": low, "minimal": low, "low": low, "medium": medium, "high": high, "xhigh": high, "max": high,
	} {
		if got, err := routing.ParseEffort(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"High", "EFFORT_LOW", "ultra"} {
		got, err := routing.ParseEffort(s)
		var e *status.Error
		if !errors.As(err, &e) || e.Reason != status.BadRequest || e.Param != "reasoning_effort" || got != unspecified {
			t.Errorf("%q: got %v, %v; want a bad request", s, got, err)
		}
	}
}

func FuzzParseModel(f *testing.F) {
	for _, s := range []string{"", "auto", "auto:low", "auto:nodes-only:high", "auto:", "gpt-4o", "auto:self_hosted:max"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := routing.ParseModel(s)
		switch {
		case err != nil:
			if c != (routing.Choice{}) || reason(err) != status.BadRequest {
				t.Fatalf("%q: got %+v with %v", s, c, err)
			}
		case c.Exact != "":
			if c != (routing.Choice{Exact: s}) || strings.HasPrefix(s, "auto:") {
				t.Fatalf("%q: got %+v", s, c)
			}
		case c.Placement != "":
			if p, err := routing.ParsePlacement(string(c.Placement)); err != nil || p != c.Placement {
				t.Fatalf("%q: placement %q is none", s, c.Placement)
			}
		}
	})
}
