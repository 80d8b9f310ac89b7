package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

const (
	// discoverTimeout bounds the look at one port. A local engine lists its models in milliseconds.
	discoverTimeout = 500 * time.Millisecond
	// maxModelList bounds what a stranger on a port may make us read.
	maxModelList = 1 << 20
)

// place is where an inference server with an OpenAI-compatible API may be.
type place struct{ name, base string }

// usualPlaces are the default addresses of the common local engines.
var usualPlaces = []place{
	{"Ollama", "http://127.0.0.1:11434/v1"},
	{"llama-server", "http://127.0.0.1:9931/v1"},
	{"llama-server", "http://127.0.0.1:8080/v1"},
	{"vLLM", "http://127.0.0.1:8000/v1"},
	{"LM Studio", "http://127.0.0.1:1234/v1"},
}

// engine is a local inference server that answered.
type engine struct {
	name   string
	models []*ktmsv1.ModelSpec
}

// discover asks places for models, all at once.
func discover(ctx context.Context, places []place) []engine {
	found := make([]engine, len(places))
	var looking sync.WaitGroup
	for i, p := range places {
		looking.Go(func() { found[i] = engine{p.name, modelsAt(ctx, p.base)} })
	}
	looking.Wait()
	answered := found[:0]
	for _, e := range found {
		if len(e.models) > 0 {
			answered = append(answered, e)
		}
	}
	return answered
}

// modelsAt lists the models of one server; nothing where there is none.
func modelsAt(ctx context.Context, base string) []*ktmsv1.ModelSpec {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/models", http.NoBody)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModelList))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	list, err := openaiapi.DecodeModelList(body)
	if err != nil {
		return nil
	}
	var models []*ktmsv1.ModelSpec
	for _, m := range list.Data {
		if m.ID != "" {
			models = append(models, localModel(m.ID, base))
		}
	}
	return models
}

func localModel(id, base string) *ktmsv1.ModelSpec {
	// Ollama lists "name:latest" and answers as "name".
	m := &ktmsv1.ModelSpec{Id: strings.TrimSuffix(id, ":latest"), Vendor: vendors.Ollama, Endpoint: base, Enabled: true}
	if strings.Contains(strings.ToLower(id), "embed") {
		m.Capabilities = []string{"embedding"}
	}
	return m
}
