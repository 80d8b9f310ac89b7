package engine

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
)

// modelList is /v1/models, with what the engines add to it about the context.
type modelList struct {
	Data present[[]listedModel] `json:"data"`
}

// listedModel is read leniently: servers that only speak OpenAI's dialect use the fields beside the id as they like.
type listedModel struct {
	ID      lenient[string]   `json:"id"`
	Aliases lenient[[]string] `json:"aliases"`
	// OwnedBy is the engine's name, by some engines.
	OwnedBy lenient[string] `json:"owned_by"`
	// Parent is the model that an adapter of vLLM belongs to.
	Parent lenient[string] `json:"parent"`
	// MaxModelLen is vLLM's and SGLang's.
	MaxModelLen lenient[float64] `json:"max_model_len"`
	// ContextLength and ContextWindow are of servers that only speak OpenAI's dialect.
	ContextLength lenient[float64] `json:"context_length"`
	ContextWindow lenient[float64] `json:"context_window"`
	// Status is that of llama-server as a router.
	Status lenient[*modelStatus] `json:"status"`
}

type modelStatus struct {
	Value string `json:"value"`
}

// longest is more context than any model has, and less than what a number in JSON can say exactly.
const longest = 1 << 40

// context is the length that one of the fields tells; 0 = none does.
func (m listedModel) context() int64 {
	for _, told := range []float64{m.MaxModelLen.value, m.ContextLength.value, m.ContextWindow.value} {
		if told >= 1 && told < longest {
			return int64(told)
		}
	}
	return 0
}

func (c *client) modelList(ctx context.Context) ([]listedModel, error) {
	var list modelList
	if err := c.getJSON(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	if !list.Data.found {
		return nil, errors.New("/v1/models has no list of models")
	}
	return slices.DeleteFunc(list.Data.value, func(m listedModel) bool { return m.ID.value == "" }), nil
}

// openaiModels lists the models of a server that holds all of them in memory.
func (c *client) openaiModels(ctx context.Context) ([]Model, error) {
	list, err := c.modelList(ctx)
	if err != nil {
		return nil, err
	}
	contexts := map[string]int64{}
	for _, m := range list {
		contexts[m.ID.value] = m.context()
	}
	var models []Model
	for _, m := range list {
		models = append(models, Model{
			ID: m.ID.value, Aliases: m.Aliases.value, Warm: true,
			ContextLength: cmp.Or(m.context(), contexts[m.Parent.value]),
		})
	}
	return models, nil
}

// vllm speaks vLLM's API.
type vllm struct{ *client }

func (v *vllm) Models(ctx context.Context) ([]Model, error) {
	models, err := v.whileReady(ctx, v.openaiModels)
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

func (t *tgi) Models(ctx context.Context) ([]Model, error) { return t.whileReady(ctx, t.info) }

func (t *tgi) info(ctx context.Context) ([]Model, error) {
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
