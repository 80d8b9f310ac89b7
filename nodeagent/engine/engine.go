// Package engine speaks to the inference engines that a node can run: which models they have, which of them are in
// memory, how much context they take, and how busy they are.
package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The engines, as --engine and the registry name them.
const (
	Ollama    = "ollama"
	VLLM      = "vllm"
	TGI       = "tgi"
	LlamaCPP  = "llamacpp"
	SGLang    = "sglang"
	Decisions = "decisions"
	Generic   = "generic"
)

// Kinds lists every engine there is a driver for.
var Kinds = []string{Ollama, VLLM, TGI, LlamaCPP, SGLang, Decisions, Generic}

// Model is one model of an engine.
type Model struct {
	// ID is how the engine lists the model.
	ID string
	// Aliases are other spellings that the engine answers to.
	Aliases []string
	// Warm says that the weights are in memory.
	Warm bool
	// ContextLength is what the engine takes now, prompt and answer together, in tokens; 0 = unknown.
	ContextLength int64
}

// Is reports whether the engine answers to name with this model.
func (m Model) Is(name string) bool { return m.ID == name || slices.Contains(m.Aliases, name) }

// Load is how busy an engine is. nil means that it does not say, which is not zero.
type Load struct {
	// Active is the number of requests that are computed now.
	Active *int32
	// Queued is the number of requests that wait in the engine.
	Queued *int32
}

// Engine is a running inference engine. It is safe for concurrent use.
type Engine interface {
	// Models lists what the engine can serve. An error says that it does not answer, or not as this engine does; a
	// *NotReadyError is its own word that it serves nothing.
	Models(ctx context.Context) ([]Model, error)
	// Load asks how busy the engine is. An engine that does not say returns the zero Load and no error.
	Load(ctx context.Context) (Load, error)
}

// Loader is the ability to move models into and out of memory. Of the engines only Ollama has it.
type Loader interface {
	// LoadModel puts a model into memory and keeps it there for at least keep. It returns when the model can answer.
	LoadModel(ctx context.Context, model string, keep time.Duration) error
	// UnloadModel frees the memory of a model.
	UnloadModel(ctx context.Context, model string) error
}

// Resident is the ability to say where loaded models lie.
type Resident interface {
	// Residents lists the loaded models.
	Residents(ctx context.Context) ([]Residence, error)
}

// Residence is a loaded model and its place.
type Residence struct {
	Model string
	// Bytes is what the model takes in all, and GPUBytes what of it lies in the GPU's memory.
	Bytes, GPUBytes int64
}

// Options say where an engine is.
type Options struct {
	// Kind is one of Kinds.
	Kind string
	// URL is the engine's address, with or without the /v1 of its OpenAI side.
	URL string
	// AuthToken is the bearer token that the engine wants; empty if none.
	AuthToken string
	// Names are models to assume where an engine of the kinds decisions and generic has no model list at all.
	Names []string
	// Client sends the requests; nil is a client of its own.
	Client *http.Client
}

// New returns the driver of an engine. It asks the engine nothing yet.
func New(o Options) (Engine, error) {
	base, err := cleanURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Client == nil {
		// No proxy of the environment: the engine is on this machine or beside it.
		o.Client = &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTimeout},
			// Nor anywhere else: the gateway, too, follows nobody to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	c := &client{http: o.Client, base: base, token: o.AuthToken}
	switch o.Kind {
	case Ollama:
		return &ollama{client: c, shown: map[string]int64{}, allocated: map[string]int64{}}, nil
	case VLLM:
		return &vllm{c}, nil
	case TGI:
		return &tgi{c}, nil
	case LlamaCPP:
		return &llamacpp{c}, nil
	case SGLang:
		return &sglang{c}, nil
	case Decisions, Generic:
		return &generic{c, o.Names}, nil
	default:
		return nil, fmt.Errorf("there is no engine %q: choose one of %s", o.Kind, strings.Join(Kinds, ", "))
	}
}

// cleanURL takes the OpenAI side's /v1 off, since the other pages lie beside it.
func cleanURL(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("the engine's address %q is no URL: write it like http://127.0.0.1:11434", text)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawQuery, u.Fragment = "", ""
	return u.String(), nil
}
