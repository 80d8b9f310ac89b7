package claude

import "testing"

func TestGenerations(t *testing.T) {
	for model, since := range map[string]int{
		"": 501, "claude-opus-5-5": 501, "claude-haiku-5-5-20261001": 501, "claude-opus-6": 501, "claude-fable-5-1": 501,
		"us.anthropic.claude-mythos-preview": 501, "claude-latest": 501, "my-claude": 501, "Claude-Opus-4.8": 407,
		"claude-mythos-5": 500, "claude-sonnet-5": 500, "us.anthropic.claude-sonnet-5-v1:0": 500, "claude-opus-4-8": 407, "claude-opus-4-7@20260401": 407, "claude-opus-4-6": 406,
		"eu.anthropic.claude-haiku-4-5-20251001-v1:0": 401, "anthropic/claude-sonnet-4.5": 401, "claude-opus-4-1-20250805": 401,
		"arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-4-6-v1": 406,
		"claude-opus-4-20250514": 400, "us.anthropic.claude-sonnet-4-20250514-v1:0": 400, "claude-sonnet-4-0": 400, "claude-3-7-sonnet-latest": 307,
		"claude-3-5-haiku-20241022": 0, "claude-3-opus-20240229": 0, "anthropic.claude-v2:1": 0, "anthropic.claude-instant-v1": 0,
	} {
		if got, known := GenerationOf(model); got.Since != since || !known {
			t.Errorf("%s: %+v %v, want %d", model, got, known, since)
		}
	}
	for _, model := range []string{"glm-4.6", "us.meta.llama4-scout-17b-instruct-v1:0", "model", "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"} {
		g, known := GenerationOf(model)
		if known || !g.Sampling || g.Style != Never || !g.Forced || g.Schemas || g.Disable {
			t.Errorf("%s: %+v %v", model, g, known)
		}
	}
	if g, _ := GenerationOf("claude-haiku-5-5"); !g.Disable {
		t.Errorf("%+v", g)
	}
	if g, _ := GenerationOf("anthropic.claude-opus-4-5-20251101-v1:0"); !g.Efforts || g.Style != Budgeted {
		t.Errorf("%+v", g)
	}
}

func TestEfforts(t *testing.T) {
	for _, c := range []struct{ model, asked, want string }{
		{"claude-opus-5-5", "minimal", "low"}, {"claude-opus-5-5", "xhigh", "xhigh"}, {"claude-opus-4-6", "xhigh", "high"},
		{"claude-opus-4-6", "max", "max"}, {"claude-opus-5-5", "ultra", ""}, {"claude-opus-5-5", "none", ""}, {"claude-opus-5-5", "", ""},
	} {
		if g, _ := GenerationOf(c.model); g.Effort(c.asked) != c.want {
			t.Errorf("%+v: %q", c, g.Effort(c.asked))
		}
	}
}

// TestCeilings: a model that thinks has room to answer after it, and none is asked for more than it has.
func TestCeilings(t *testing.T) {
	for _, c := range []struct {
		model, effort string
		want          int64
	}{
		{"claude-opus-5-5", "", 28672}, {"claude-opus-5-5", "none", 28672}, {"claude-haiku-5-5", "none", 4096}, {"claude-opus-5-5", "ultra", 28672},
		{"claude-opus-5-5", "low", 6144}, {"claude-opus-5-5", "high", 28672}, {"claude-opus-5-5", "max", 64000}, {"claude-opus-5", "xhigh", 36864},
		{"claude-opus-4-8", "", 4096}, {"claude-opus-4-8", "max", 64000}, {"claude-sonnet-4-6", "medium", 12288}, {"claude-sonnet-4-6", "xhigh", 28672},
		{"claude-haiku-4-5", "", 4096}, {"claude-haiku-4-5", "high", 28672}, {"claude-opus-4-20250514", "max", 32000},
		{"claude-3-opus-20240229", "high", 4096}, {"glm-4.6", "high", 4096},
	} {
		if g, _ := GenerationOf(c.model); g.Ceiling(c.effort) != c.want {
			t.Errorf("%+v: %d", c, g.Ceiling(c.effort))
		}
	}
}
