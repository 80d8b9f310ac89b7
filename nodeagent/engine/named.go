package engine

import (
	"context"
	"slices"
	"strings"
)

// Named is the ability to say which engine it is that answers.
type Named interface {
	// CallsItself returns the kind that the engine claims to be; empty where it does not say.
	CallsItself(ctx context.Context) string
}

// ollamaGreeting is the front page of an Ollama.
const ollamaGreeting = "Ollama is running"

// CallsItself implements Named.
func (c *client) CallsItself(ctx context.Context) string {
	if page, err := c.get(ctx, "/"); err == nil && strings.TrimSpace(string(page)) == ollamaGreeting {
		return Ollama
	}
	list, err := c.modelList(ctx)
	if err != nil {
		return ""
	}
	for _, m := range list {
		// These three name themselves as the owner of every model.
		if owner := m.OwnedBy.value; slices.Contains([]string{VLLM, SGLang, LlamaCPP}, owner) {
			return owner
		}
	}
	return ""
}
