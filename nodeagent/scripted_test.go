package nodeagent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectinprocess"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/nodeagent/engine"
)

// gateway is a scripted registry. Without a script it takes everything.
type gateway struct {
	mu       sync.Mutex
	vet      func(*ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error)
	register func(*ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error)
	beat     func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error)
	// hang makes every call wait for its end.
	hang bool
	// calls are what came, with the seconds since began.
	calls []call
	began time.Time
}

type call struct {
	after time.Duration
	what  string
	beat  *ktmsv1.HeartbeatRequest
	reg   *ktmsv1.RegisterNodeRequest
	// instance is what the call named.
	instance string
}

func (g *gateway) note(ctx context.Context, c call) error {
	g.mu.Lock()
	c.after = time.Since(g.began)
	g.calls = append(g.calls, c)
	hang := g.hang
	g.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// set changes the script while the agent runs.
func (g *gateway) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// take returns the calls since the last take.
func (g *gateway) take() []call {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() { g.calls = nil }()
	return g.calls
}

// names are the kinds of calls, runs of the same one written once.
func names(calls []call) string {
	var all []string
	for _, c := range calls {
		all = append(all, c.what)
	}
	return strings.Join(slices.Compact(all), " ")
}

func (g *gateway) VetModels(ctx context.Context, r *ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
	if err := g.note(ctx, call{what: "vet"}); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.vet != nil {
		return g.vet(r)
	}
	return &ktmsv1.VetModelsResponse{}, nil
}

func (g *gateway) RegisterNode(ctx context.Context, r *ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
	if err := g.note(ctx, call{what: "register", reg: r, instance: r.Instance}); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.register != nil {
		return g.register(r)
	}
	return &ktmsv1.RegisterNodeResponse{HeartbeatIntervalSeconds: 5, SupportsLevels: true}, nil
}

func (g *gateway) Heartbeat(ctx context.Context, r *ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
	what := "beat"
	if r.Draining {
		what = "draining"
	}
	if err := g.note(ctx, call{what: what, beat: r, instance: r.Instance}); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.beat != nil {
		return g.beat(r)
	}
	return &ktmsv1.HeartbeatResponse{State: ktmsv1.NodeState_NODE_STATE_HEALTHY}, nil
}

func (g *gateway) UnregisterNode(ctx context.Context, r *ktmsv1.UnregisterNodeRequest) (*ktmsv1.UnregisterNodeResponse, error) {
	return &ktmsv1.UnregisterNodeResponse{}, g.note(ctx, call{what: "unregister", instance: r.Instance})
}

// scriptedOllama is an Ollama without a network.
type scriptedOllama struct {
	mu     sync.Mutex
	models map[string]bool // and whether they are loaded
	down   error
	// moves are the loads and unloads, and broken makes them fail.
	moves  []string
	broken bool
	// fails are the statuses that moves of single models are answered with.
	fails map[string]int
	// slow is how long a load takes.
	slow time.Duration
}

func (o *scriptedOllama) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	down := o.down
	o.mu.Unlock()
	if down != nil {
		return nil, down
	}
	w := httptest.NewRecorder()
	o.serve(w, r)
	return w.Result(), nil
}

func (o *scriptedOllama) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := []map[string]any{}
	switch r.URL.Path {
	case "/api/tags", "/api/ps":
		for name, loaded := range o.models {
			if loaded || r.URL.Path == "/api/tags" {
				list = append(list, map[string]any{"name": name, "digest": name, "context_length": 4096})
			}
		}
		slices.SortFunc(list, func(a, b map[string]any) int { return strings.Compare(a["name"].(string), b["name"].(string)) })
		body, err := json.Marshal(map[string]any{"models": list})
		if err != nil {
			panic(err)
		}
		w.Write(body)
	case "/api/show":
		io.WriteString(w, `{}`)
	case "/api/generate":
		var in struct {
			Model     string `json:"model"`
			KeepAlive any    `json:"keep_alive"`
		}
		json.NewDecoder(r.Body).Decode(&in)
		what := "load"
		if in.KeepAlive == 0.0 {
			what = "unload"
		}
		if status := o.fails[in.Model]; o.broken || status != 0 {
			o.moves = append(o.moves, "broken "+what+" "+in.Model)
			w.WriteHeader(cmp.Or(status, http.StatusInternalServerError))
			return
		}
		if what == "load" && o.slow > 0 {
			o.mu.Unlock()
			time.Sleep(o.slow)
			o.mu.Lock()
		}
		o.models[in.Model] = what == "load"
		o.moves = append(o.moves, what+" "+in.Model)
		fmt.Fprintf(w, `{"done":true,"done_reason":%q}`, what)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (o *scriptedOllama) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *scriptedOllama) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.moves = nil }()
	return strings.Join(o.moves, ", ")
}

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// world is an agent between a scripted gateway and a scripted Ollama. It lives in a bubble of synctest.
type world struct {
	gateway *gateway
	ollama  *scriptedOllama
	log     *lockedLog
	// stop is what SIGTERM does, and stopped is closed when the agent has left.
	stop    context.CancelFunc
	stopped chan struct{}
}

func start(t *testing.T, g *gateway, change func(*Options)) *world {
	t.Helper()
	g.began = time.Now()
	server := connect.NewServer()
	ktmsv1connect.RegisterNodeRegistryServiceHandler(server, g)
	w := &world{gateway: g, log: &lockedLog{}, stopped: make(chan struct{}), ollama: &scriptedOllama{models: map[string]bool{"a:1": true, "b:1": false}}}
	e, err := engine.New(engine.Options{Kind: engine.Ollama, URL: "http://ollama", Client: &http.Client{Transport: w.ollama}})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		NodeID: "n", Name: "the node", Kind: engine.Ollama, Endpoint: "http://10.0.0.1:11434/v1", AuthToken: "token",
		BaseWeight: 100, MaxConcurrent: 2, Warmup: 5 * time.Minute, Version: "1.2.3",
		Registry: ktmsv1connect.NewNodeRegistryServiceClient(connect.NewClient(connectinprocess.New(server))),
		Engine:   e,
		Log:      slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() {
		defer close(w.stopped)
		New(o).Run(ctx)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the agent's log:\n" + w.log.String())
		}
	})
	return w
}
