package engine

import (
	"context"
	"net/http"
	"net/url"
)

// llamacpp speaks llama-server's API, of one model or as a router of several.
type llamacpp struct{ *client }

// Models lists the models. A server that still loads its only one lists it all the same, so its health counts, too.
func (l *llamacpp) Models(ctx context.Context) ([]Model, error) { return l.whileReady(ctx, l.list) }

func (l *llamacpp) list(ctx context.Context) ([]Model, error) {
	list, err := l.modelList(ctx)
	if err != nil {
		return nil, err
	}
	var models []Model
	for _, listed := range list {
		router := listed.Status.value != nil
		m := Model{ID: listed.ID.value, Aliases: listed.Aliases.value, Warm: !router || listed.Status.value.Value == "loaded"}
		if m.Warm {
			props := l.props(ctx, forModel(m.ID, router))
			m.Warm = !props.IsSleeping
			m.ContextLength = max(props.Settings.NCtx, props.NCtx, 0)
		}
		models = append(models, m)
	}
	return models, nil
}

// llamaProps are what a server tells about the model that it holds.
type llamaProps struct {
	// Settings have what one slot holds: the whole context is shared out among the slots.
	Settings struct {
		NCtx int64 `json:"n_ctx"`
	} `json:"default_generation_settings"`
	NCtx int64 `json:"n_ctx"`
	// IsSleeping says that the model left the memory, and comes back with the next request.
	IsSleeping bool `json:"is_sleeping"`
}

// props asks a page that neither loads nor wakes a model. Old servers do not have it.
func (l *llamacpp) props(ctx context.Context, query string) llamaProps {
	var props llamaProps
	if err := l.getJSON(ctx, "/props"+query, &props); err != nil {
		return llamaProps{}
	}
	return props
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
		router := listed.Status.value != nil
		if router && listed.Status.value.Value != "loaded" {
			continue
		}
		one, err := l.modelLoad(ctx, forModel(listed.ID.value, router))
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
	if l.props(ctx, query).IsSleeping {
		// In some releases the questions below count as requests, and wake it.
		return Load{Active: new(int32(0)), Queued: new(int32(0))}, nil
	}
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
