package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// latest is the tag that a name without one means.
const latest = ":latest"

// ollama speaks Ollama's native API. It has no queue to ask for, so Load says nothing.
type ollama struct {
	*client

	mu sync.Mutex
	// shown remembers the context length that a model has at least, by its own settings, by digest.
	shown map[string]int64
	// allocated remembers the context length that a model had when it was last in memory, by digest.
	allocated map[string]int64
}

type ollamaModel struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// RemoteHost is set for models that another machine computes.
	RemoteHost string `json:"remote_host"`
	// The rest is only in the list of loaded models.
	Size          int64 `json:"size"`
	SizeVRAM      int64 `json:"size_vram"`
	ContextLength int64 `json:"context_length"`
}

type ollamaList struct {
	Models present[[]ollamaModel] `json:"models"`
}

func (o *ollama) list(ctx context.Context, path string) ([]ollamaModel, error) {
	var list ollamaList
	if err := o.getJSON(ctx, path, &list); err != nil {
		return nil, err
	}
	if !list.Models.found {
		return nil, fmt.Errorf("%s has no list of models: is this an Ollama?", path)
	}
	return list.Models.value, nil
}

// Models lists the local models. Those that Ollama only passes on to another machine are left out: whoever asks for a
// local model expects that its text stays here.
func (o *ollama) Models(ctx context.Context) ([]Model, error) {
	tags, err := o.list(ctx, "/api/tags")
	if err != nil {
		return nil, err
	}
	loaded, err := o.list(ctx, "/api/ps")
	if err != nil {
		return nil, err
	}
	running := map[string]ollamaModel{}
	for _, m := range loaded {
		running[m.Name] = m
	}
	var models []Model
	for _, tag := range tags {
		if tag.RemoteHost != "" {
			continue
		}
		m := Model{ID: tag.Name}
		if short, found := strings.CutSuffix(tag.Name, latest); found {
			m.Aliases = []string{short}
		}
		if r, found := running[tag.Name]; found {
			m.Warm, m.ContextLength = true, r.ContextLength
			o.remember(tag.Digest, r.ContextLength)
		} else {
			m.ContextLength = o.coldContext(ctx, tag)
		}
		models = append(models, m)
	}
	return models, nil
}

func (o *ollama) remember(digest string, context int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if context > 0 {
		o.allocated[digest] = context
	}
}

// leastContext is what Ollama allocates where nothing says how much: on machines with less than 24 GiB of graphics memory;
// on others it is more.
const leastContext = 4096

// coldContext is the context length that a model will have once it is loaded: what it had the last time, or what its
// settings fix, or the least that it may be. What it was trained for says nothing, since Ollama allocates far less by
// default and then cuts prompts silently: to promise too little only keeps long prompts away until the model was loaded
// once.
func (o *ollama) coldContext(ctx context.Context, tag ollamaModel) int64 {
	o.mu.Lock()
	had, fixed := o.allocated[tag.Digest], o.shown[tag.Digest]
	_, asked := o.shown[tag.Digest]
	o.mu.Unlock()
	if had > 0 {
		return had
	}
	if asked {
		return fixed
	}
	if ctx.Err() != nil {
		return leastContext
	}
	fixed, err := o.show(ctx, tag.Name)
	if err != nil {
		return leastContext // asked again the next time
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shown[tag.Digest] = fixed
	return fixed
}

// show reads num_ctx from a model's settings, or takes the least that it may be, cut to what the model was trained for as
// Ollama does it.
func (o *ollama) show(ctx context.Context, model string) (int64, error) {
	var page struct {
		Parameters string                     `json:"parameters"`
		ModelInfo  map[string]json.RawMessage `json:"model_info"`
	}
	if err := o.post(ctx, readTimeout, "/api/show", map[string]any{"model": model}, &page); err != nil {
		return 0, err
	}
	var fixed int64
	for line := range strings.Lines(page.Parameters) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "num_ctx" {
			fixed, _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	if fixed <= 0 {
		fixed = leastContext
	}
	var architecture string
	var trained int64
	if json.Unmarshal(page.ModelInfo["general.architecture"], &architecture) == nil &&
		json.Unmarshal(page.ModelInfo[architecture+".context_length"], &trained) == nil && trained > 0 {
		fixed = min(fixed, trained)
	}
	return fixed, nil
}

// Load says nothing: Ollama does not tell how many requests it has.
func (*ollama) Load(context.Context) (Load, error) { return Load{}, nil }

// Residents lists the loaded models.
func (o *ollama) Residents(ctx context.Context) ([]Residence, error) {
	loaded, err := o.list(ctx, "/api/ps")
	if err != nil {
		return nil, err
	}
	residences := make([]Residence, 0, len(loaded))
	for _, m := range loaded {
		residences = append(residences, Residence{m.Name, m.Size, m.SizeVRAM})
	}
	return residences, nil
}

// LoadModel loads with an empty prompt.
func (o *ollama) LoadModel(ctx context.Context, model string, keep time.Duration) error {
	return o.generate(ctx, loadTimeout, "load", map[string]any{
		"model": model, "keep_alive": strconv.Itoa(int(keep.Seconds())) + "s", "stream": false,
	})
}

// UnloadModel lets Ollama forget the model at once, or when the requests that it has are done.
func (o *ollama) UnloadModel(ctx context.Context, model string) error {
	return o.generate(ctx, readTimeout, "unload", map[string]any{"model": model, "keep_alive": 0, "stream": false})
}

func (o *ollama) generate(ctx context.Context, timeout time.Duration, reason string, in map[string]any) error {
	var answer struct {
		Done       bool   `json:"done"`
		DoneReason string `json:"done_reason"`
	}
	if err := o.post(ctx, timeout, "/api/generate", in, &answer); err != nil {
		return err
	}
	// Old versions give no reason.
	if !answer.Done || (answer.DoneReason != "" && answer.DoneReason != reason) {
		return errors.New("ollama answered to the " + reason + " of a model with something else")
	}
	return nil
}
