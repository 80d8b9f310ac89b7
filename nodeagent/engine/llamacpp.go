package engine

import (
	"context"
	"net/http"
	"net/url"
)

// llamacpp speaks llama-server's API, of one model or as a router of several.
type llamacpp struct{ *client }

func (l *llamacpp) Models(ctx context.Context) ([]Model, error) {
	list, err := l.modelList(ctx)
	if err != nil {
		return nil, err
	}
	var models []Model
	for _, listed := range list {
		if listed.ID == "" {
			continue
		}
		router := listed.Status != nil
		m := Model{ID: listed.ID, Aliases: listed.Aliases, Warm: !router || listed.Status.Value == "loaded"}
		if m.Warm {
			m.ContextLength = l.slotContext(ctx, forModel(listed.ID, router))
		}
		models = append(models, m)
	}
	return models, nil
}

// slotContext is what one slot holds: the whole context is shared out among the slots.
func (l *llamacpp) slotContext(ctx context.Context, query string) int64 {
	var props struct {
		Settings struct {
			NCtx int64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
		NCtx int64 `json:"n_ctx"`
	}
	if err := l.getJSON(ctx, "/props"+query, &props); err != nil {
		return 0
	}
	return max(props.Settings.NCtx, props.NCtx, 0)
}

// Load adds up the loaded models. Without --metrics it counts the busy slots, and then the queue stays unknown.
func (l *llamacpp) Load(ctx context.Context) (Load, error) {
	list, err := l.modelList(ctx)
	if err != nil {
		return Load{}, err
	}
	var sum Load
	counted := false
	for _, listed := range list {
		router := listed.Status != nil
		if router && listed.Status.Value != "loaded" {
			continue
		}
		one, err := l.modelLoad(ctx, forModel(listed.ID, router))
		if err != nil {
			return Load{}, err
		}
		if !counted {
			sum, counted = one, true
			continue
		}
		sum = Load{add(sum.Active, one.Active), add(sum.Queued, one.Queued)}
	}
	return sum, nil
}

// add keeps a sum unknown when a part of it is.
func add(a, b *int32) *int32 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

func (l *llamacpp) modelLoad(ctx context.Context, query string) (Load, error) {
	load, err := l.metrics(ctx, "/metrics"+query, llamacppGauges)
	if err != nil || load.Active != nil {
		return load, err
	}
	var slots []struct {
		IsProcessing bool `json:"is_processing"`
	}
	err = l.getJSON(ctx, "/slots"+query, &slots)
	if hasStatus(err, http.StatusNotFound, http.StatusNotImplemented, http.StatusForbidden) {
		return load, nil
	}
	if err != nil {
		return load, err
	}
	var busy int32
	for _, s := range slots {
		if s.IsProcessing {
			busy++
		}
	}
	load.Active = &busy
	return load, nil
}

// forModel names the model that a router shall ask, without loading it for that.
func forModel(model string, router bool) string {
	if !router {
		return ""
	}
	return "?" + url.Values{"model": {model}, "autoload": {"false"}}.Encode()
}
