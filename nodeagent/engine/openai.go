package engine

import (
	"context"
	"errors"
	"net/http"
)

// modelList is /v1/models, with what the engines add to it about the context.
type modelList struct {
	Data *[]listedModel `json:"data"`
}

type listedModel struct {
	ID      string   `json:"id"`
	Aliases []string `json:"aliases"`
	// MaxModelLen is vLLM's and SGLang's.
	MaxModelLen int64 `json:"max_model_len"`
	// ContextLength and ContextWindow are of servers that only speak OpenAI's dialect.
	ContextLength int64 `json:"context_length"`
	ContextWindow int64 `json:"context_window"`
	// Status is that of llama-server as a router.
	Status *struct {
		Value string `json:"value"`
	} `json:"status"`
}

func (c *client) modelList(ctx context.Context) ([]listedModel, error) {
	var list modelList
	if err := c.getJSON(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	if list.Data == nil {
		return nil, errors.New("/v1/models has no list of models")
	}
	return *list.Data, nil
}

// openaiModels lists the models of a server that holds all of them in memory.
func (c *client) openaiModels(ctx context.Context) ([]Model, error) {
	list, err := c.modelList(ctx)
	if err != nil {
		return nil, err
	}
	var models []Model
	for _, m := range list {
		if m.ID != "" {
			models = append(models, Model{
				ID: m.ID, Aliases: m.Aliases, Warm: true,
				ContextLength: max(m.MaxModelLen, m.ContextLength, m.ContextWindow, 0),
			})
		}
	}
	return models, nil
}

// vllm speaks vLLM's API.
type vllm struct{ *client }

func (v *vllm) Models(ctx context.Context) ([]Model, error) {
	models, err := v.openaiModels(ctx)
	if err != nil {
		return nil, err
	}
	var sleep struct {
		IsSleeping bool `json:"is_sleeping"`
	}
	// Only servers in development mode have the page; the others never sleep.
	if err := v.getJSON(ctx, "/is_sleeping", &sleep); err == nil && sleep.IsSleeping {
		for i := range models {
			models[i].Warm = false
		}
	}
	return models, nil
}

func (v *vllm) Load(ctx context.Context) (Load, error) { return v.metrics(ctx, "/metrics", vllmGauges) }

// sglang speaks SGLang's API.
type sglang struct{ *client }

func (s *sglang) Models(ctx context.Context) ([]Model, error) { return s.openaiModels(ctx) }

func (s *sglang) Load(ctx context.Context) (Load, error) {
	return s.metrics(ctx, "/metrics", sglangGauges)
}

// tgi speaks Text Generation Inference's API.
type tgi struct{ *client }

func (t *tgi) Models(ctx context.Context) ([]Model, error) {
	var info struct {
		ModelID        string `json:"model_id"`
		MaxTotalTokens int64  `json:"max_total_tokens"`
	}
	if err := t.getJSON(ctx, "/info", &info); err != nil {
		return nil, err
	}
	if info.ModelID == "" {
		return nil, errors.New("/info names no model: is this a TGI?")
	}
	return []Model{{ID: info.ModelID, Warm: true, ContextLength: max(info.MaxTotalTokens, 0)}}, nil
}

func (t *tgi) Load(ctx context.Context) (Load, error) { return t.metrics(ctx, "/metrics", tgiGauges) }

// generic speaks to any server with OpenAI's API. Its metrics are read where they have names that another engine uses.
type generic struct {
	*client

	names []string
}

func (g *generic) Models(ctx context.Context) ([]Model, error) {
	models, err := g.openaiModels(ctx)
	if len(g.names) > 0 && hasStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented) {
		for _, name := range g.names {
			models = append(models, Model{ID: name, Warm: true})
		}
		return models, nil
	}
	return models, err
}

func (g *generic) Load(ctx context.Context) (Load, error) {
	return g.metrics(ctx, "/metrics", genericGauges)
}

// metrics reads a metrics page. A server without one says nothing about its load.
func (c *client) metrics(ctx context.Context, path string, names gauges) (Load, error) {
	page, err := c.get(ctx, path)
	if hasStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented) {
		return Load{}, nil
	}
	if err != nil {
		return Load{}, err
	}
	return names.read(page), nil
}
