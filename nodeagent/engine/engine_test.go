package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// pages answers "METHOD /path?query" with recorded or written answers; the rest is 404.
type pages map[string]string

// server replays pages. A page that names a file of testdata is a recorded answer, one that begins with a number and a
// space has that status, and any other is a body.
func (p pages) server(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		page, found := p[r.Method+" "+r.URL.RequestURI()]
		if with, ok := p[r.Method+" "+r.URL.RequestURI()+" "+string(body)]; ok {
			page, found = with, true
		}
		if !found {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		replay(t, w, page)
	}))
	t.Cleanup(s.Close)
	return s
}

func replay(t *testing.T, w http.ResponseWriter, page string) {
	if strings.HasSuffix(page, ".resp") || strings.HasSuffix(page, ".prom") {
		recorded, err := os.ReadFile(filepath.Join("testdata", page))
		if err != nil {
			t.Error(err)
			return
		}
		if strings.HasSuffix(page, ".prom") {
			w.Write(recorded)
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(recorded)), nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
		return
	}
	var status int
	if n, err := json.Number(strings.SplitN(page, " ", 2)[0]).Int64(); err == nil {
		status = int(n)
		_, page, _ = strings.Cut(page, " ")
		w.WriteHeader(status)
	}
	io.WriteString(w, page)
}

func open(t *testing.T, kind, url string, names ...string) Engine {
	t.Helper()
	e, err := New(Options{Kind: kind, URL: url, Names: names})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const (
	llamaOne    = `{"object":"list","data":[{"id":"/models/q.gguf","object":"model","aliases":["q"],"meta":{"n_ctx_train":32768}}]}`
	llamaRouter = `{"data":[{"id":"a","status":{"value":"loaded"}},{"id":"b","status":{"value":"unloaded"}},{"id":"c","status":{"value":"loading"}}]}`
)

func TestModels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, kind string
		pages      pages
		names      []string
		want       []Model
		err        string
	}{
		{"ollama, loaded", Ollama, pages{"GET /api/tags": "03-tags.resp", "GET /api/ps": "50-ps-loaded.resp", "POST /api/show": "08-show.resp"}, nil, []Model{
			{ID: "lab-slow:latest", Aliases: []string{"lab-slow"}, ContextLength: 2048},
			{ID: "lab-random:latest", Aliases: []string{"lab-random"}, Warm: true, ContextLength: 512},
			{ID: "lab-script:latest", Aliases: []string{"lab-script"}, Warm: true, ContextLength: 2048},
		}, ""},
		{"ollama, num_ctx of the settings, cut to the training, or the least", Ollama, pages{
			"GET /api/tags":                  `{"models":[{"name":"a:1","digest":"1"},{"name":"b:1","digest":"2"},{"name":"far:cloud","remote_host":"https://ollama.com"}]}`,
			"GET /api/ps":                    "07-ps-nothing-loaded.resp",
			`POST /api/show {"model":"a:1"}`: `{"parameters":"stop \"x\"\nnum_ctx                        8192","model_info":{"general.architecture":"q","q.context_length":4096}}`,
			`POST /api/show {"model":"b:1"}`: "09-show-unknown.resp",
		}, nil, []Model{{ID: "a:1", ContextLength: 4096}, {ID: "b:1", ContextLength: 4096}}, ""},
		{"not an ollama", Ollama, pages{"GET /api/tags": `{}`}, nil, nil, "is this an Ollama?"},
		{"ollama asked at the wrong port", Ollama, pages{}, nil, nil, "/api/tags answered with status 404"},
		{"ollama, two loaded", Ollama, pages{"GET /api/tags": "03-tags.resp", "GET /api/ps": "61-ps-two-loaded.resp", "POST /api/show": "08-show.resp"}, nil, []Model{
			{ID: "lab-slow:latest", Aliases: []string{"lab-slow"}, ContextLength: 2048},
			{ID: "lab-random:latest", Aliases: []string{"lab-random"}, Warm: true, ContextLength: 512},
			{ID: "lab-script:latest", Aliases: []string{"lab-script"}, Warm: true, ContextLength: 2048},
		}, ""},
		{"ollama, another one loaded", Ollama, pages{"GET /api/tags": "03-tags.resp", "GET /api/ps": "74-ps-slow.resp", "POST /api/show": "09-show-unknown.resp"}, nil, []Model{
			{ID: "lab-slow:latest", Aliases: []string{"lab-slow"}, Warm: true, ContextLength: 2048},
			{ID: "lab-random:latest", Aliases: []string{"lab-random"}, ContextLength: 4096},
			{ID: "lab-script:latest", Aliases: []string{"lab-script"}, Warm: true, ContextLength: 2048},
		}, ""},
		{"ollama without a model", Ollama, pages{"GET /api/tags": `{"models":null}`, "GET /api/ps": `{"models":null}`}, nil, nil, ""},
		{"ollama that is not asked for its own pages", Generic, pages{"GET /v1/models": "04-v1-models.resp", "GET /health": "42-health.resp"}, nil,
			[]Model{{ID: "lab-slow:latest", Warm: true}, {ID: "lab-random:latest", Warm: true}, {ID: "lab-script:latest", Warm: true}}, ""},
		{"ollama taken for a tgi", TGI, pages{"GET /info": "40-err-unknown-path.resp", "GET /health": "42-health.resp"}, nil, nil, "/info answered with status 404: 404 page not found"},
		{"vllm", VLLM, pages{"GET /v1/models": `{"data":[{"id":"lora","parent":"lab/tiny","max_model_len":null},{"id":"lab/tiny","max_model_len":8192,"parent":null}]}`, "GET /health": ""}, nil,
			[]Model{{ID: "lora", Warm: true, ContextLength: 8192}, {ID: "lab/tiny", Warm: true, ContextLength: 8192}}, ""},
		{"vllm whose engine is dead behind a living server", VLLM, pages{"GET /v1/models": `{"data":[{"id":"m"}]}`, "GET /health": "503 "}, nil, nil, "not ready"},
		{"tgi that is not well", TGI, pages{"GET /info": `{"model_id":"org/m"}`, "GET /health": `503 {"error":"unhealthy","error_type":"healthcheck"}`}, nil, nil, "not ready: unhealthy"},
		{"llama-server that lists what it still loads", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /health": `503 {"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`},
			nil, nil, "not ready: Loading model"},
		{"llama-server asleep", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /props": `{"default_generation_settings":{"n_ctx":4096},"is_sleeping":true}`}, nil,
			[]Model{{ID: "/models/q.gguf", Aliases: []string{"q"}, ContextLength: 4096}}, ""},
		{"fields that mean something else", Generic, pages{"GET /v1/models": `{"data":[{"id":"x","status":"ready","max_model_len":"8192","context_length":1024.0,"aliases":"x","parent":{}},
			{"id":7},{"id":"y","status":{"value":3},"max_model_len":1e99,"context_window":-5}]}`}, nil, []Model{{ID: "x", Warm: true, ContextLength: 1024}, {ID: "y", Warm: true}}, ""},
		{"generic without a model", Generic, pages{"GET /v1/models": `{"object":"list","data":null}`}, nil, nil, ""},
		{"moved", VLLM, pages{"GET /v1/models": "301 "}, nil, nil, "status 301"},
		{"vllm asleep", VLLM, pages{"GET /v1/models": `{"data":[{"id":"m"}]}`, "GET /is_sleeping": `{"is_sleeping":true}`}, nil, []Model{{ID: "m"}}, ""},
		{"vllm awake", VLLM, pages{"GET /v1/models": `{"data":[{"id":"m"}]}`, "GET /is_sleeping": `{"is_sleeping":false}`}, nil, []Model{{ID: "m", Warm: true}}, ""},
		{"vllm whose engine died", VLLM, pages{"GET /v1/models": `503 {"error":{"message":"engine dead"}}`}, nil, nil, "status 503: engine dead"},
		{"tgi", TGI, pages{"GET /info": `{"model_id":"org/m","max_input_tokens":4095,"max_total_tokens":4096}`}, nil, []Model{{ID: "org/m", Warm: true, ContextLength: 4096}}, ""},
		{"not a tgi", TGI, pages{"GET /info": `{}`}, nil, nil, "is this a TGI?"},
		{"llama-server", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /props": `{"default_generation_settings":{"n_ctx":4096},"total_slots":4}`}, nil,
			[]Model{{ID: "/models/q.gguf", Aliases: []string{"q"}, Warm: true, ContextLength: 4096}}, ""},
		{"llama-server without props", LlamaCPP, pages{"GET /v1/models": `{"data":[{"id":"q","meta":{"n_ctx_train":32768}}]}`}, nil, []Model{{ID: "q", Warm: true}}, ""},
		{"llama-server as a router", LlamaCPP, pages{"GET /v1/models": llamaRouter, "GET /props?autoload=false&model=a": `{"default_generation_settings":{"n_ctx":2048}}`}, nil,
			[]Model{{ID: "a", Warm: true, ContextLength: 2048}, {ID: "b"}, {ID: "c"}}, ""},
		{"llama-server that loads", LlamaCPP, pages{"GET /v1/models": `503 {"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`}, nil, nil, "Loading model"},
		{"sglang", SGLang, pages{"GET /v1/models": `{"object":"list","data":[{"id":"m","root":"m","max_model_len":131072}]}`}, nil, []Model{{ID: "m", Warm: true, ContextLength: 131072}}, ""},
		{"decisions without a list", Decisions, pages{}, []string{"jepa"}, []Model{{ID: "jepa", Warm: true}}, ""},
		{"decisions without a list or names", Decisions, pages{}, nil, nil, "status 404"},
		{"generic", Generic, pages{"GET /v1/models": `{"data":[{"id":"x","context_length":1000},{"id":""}]}`}, []string{"ignored"}, []Model{{ID: "x", Warm: true, ContextLength: 1000}}, ""},
		{"generic with an HTML page", Generic, pages{"GET /v1/models": `<html>`}, nil, nil, "is --engine right?"},
		{"generic without data", Generic, pages{"GET /v1/models": `{"models":[]}`}, nil, nil, "no list of models"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := open(t, c.kind, c.pages.server(t).URL, c.names...).Models(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, kind     string
		pages          pages
		active, queued int32
		err            string
	}{
		{"ollama has no queue", Ollama, pages{}, -1, -1, ""},
		{"vllm", VLLM, pages{"GET /metrics": "vllm-2026.prom"}, 2, 1, ""},
		{"tgi", TGI, pages{"GET /metrics": "tgi-3.prom"}, 4, 3, ""},
		{"sglang without --enable-metrics", SGLang, pages{}, -1, -1, ""},
		{"sglang", SGLang, pages{"GET /metrics": "sglang-new.prom"}, 2, 0, ""},
		{"llama-server", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /metrics": "llamacpp-b10472.prom"}, 2, 1, ""},
		{"llama-server without --metrics", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /metrics": "501 {}", "GET /slots": `[{"is_processing":true},{"is_processing":false}]`}, 1, -1, ""},
		{"llama-server without both", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /metrics": "501 {}", "GET /slots": "501 {}"}, -1, -1, ""},
		{"llama-server as a router", LlamaCPP, pages{"GET /v1/models": strings.ReplaceAll(llamaRouter, "loading", "loaded"),
			"GET /metrics?autoload=false&model=a": "llamacpp-b10472.prom", "GET /metrics?autoload=false&model=c": "llamacpp-b10472.prom"}, 4, 2, ""},
		{"llama-server as a router that says half", LlamaCPP, pages{"GET /v1/models": strings.ReplaceAll(llamaRouter, "loading", "loaded"),
			"GET /slots?autoload=false&model=a": "[]", "GET /metrics?autoload=false&model=c": "llamacpp-b10472.prom"}, 2, -1, ""},
		{"generic with the metrics of another", Generic, pages{"GET /metrics": "vllm-2026.prom"}, 2, 1, ""},
		{"ollama's own pages for a generic one", Generic, pages{"GET /metrics": "41-metrics.resp"}, -1, -1, ""},
		{"llama-server asleep is not woken", LlamaCPP, pages{"GET /v1/models": llamaOne, "GET /props": `{"is_sleeping":true}`, "GET /metrics": "500 woken", "GET /slots": "500 woken"}, 0, 0, ""},
		{"metrics that break", VLLM, pages{"GET /metrics": "500 oh"}, -1, -1, "status 500: oh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := open(t, c.kind, c.pages.server(t).URL).Load(t.Context())
			if (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if number(got.Active) != c.active || number(got.Queued) != c.queued {
				t.Errorf("active %d, queued %d, want %d and %d", number(got.Active), number(got.Queued), c.active, c.queued)
			}
		})
	}
}

// TestOllamaRemembersContext keeps the allocated context of a model that left the memory.
func TestOllamaRemembersContext(t *testing.T) {
	t.Parallel()
	p := pages{"GET /api/tags": "03-tags.resp", "GET /api/ps": "50-ps-loaded.resp", "POST /api/show": "08-show.resp"}
	e := open(t, Ollama, p.server(t).URL)
	if _, err := e.Models(t.Context()); err != nil {
		t.Fatal(err)
	}
	p["GET /api/ps"] = "07-ps-nothing-loaded.resp"
	models, err := e.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m := models[1]; m.Warm || m.ContextLength != 512 {
		t.Errorf("got %+v, want a cold model with 512", m)
	}
}

func TestOllamaLoadsAndUnloads(t *testing.T) {
	t.Parallel()
	s := pages{
		`POST /api/generate {"keep_alive":"900s","model":"lab-slow","stream":false}`: "53-api-generate-load.resp",
		`POST /api/generate {"keep_alive":0,"model":"lab-random","stream":false}`:    "62-unload.resp",
		`POST /api/generate {"keep_alive":0,"model":"lab-slow","stream":false}`:      "53-api-generate-load.resp",
		"GET /api/ps": "63-ps-after-unload.resp",
	}.server(t)
	e := open(t, Ollama, s.URL)
	loader := e.(Loader)
	if err := loader.LoadModel(t.Context(), "lab-slow", 15*time.Minute); err != nil {
		t.Error(err)
	}
	if err := loader.UnloadModel(t.Context(), "lab-random"); err != nil {
		t.Error(err)
	}
	if err := loader.UnloadModel(t.Context(), "lab-slow"); err == nil {
		t.Error("an answer with done_reason load counted as an unload")
	}
	if err := loader.UnloadModel(t.Context(), "nope"); err == nil {
		t.Error("a 404 counted as an unload")
	}
	on, err := e.(Resident).Residents(t.Context())
	want := []Residence{{"lab-script:latest", 7417600, 0}}
	if err != nil || !reflect.DeepEqual(on, want) {
		t.Errorf("got %+v, %v, want %+v", on, err, want)
	}
}

func TestAddressAndToken(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sub/v1/models" || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, r.URL.Path, http.StatusTeapot)
			return
		}
		io.WriteString(w, `{"data":[]}`)
	}))
	t.Cleanup(s.Close)
	for _, address := range []string{s.URL + "/sub", s.URL + "/sub/", s.URL + "/sub/v1", s.URL + "/sub/v1/"} {
		e, err := New(Options{Kind: Generic, URL: address, AuthToken: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Models(t.Context()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"", "127.0.0.1:11434", "ftp://x", "http://"} {
		if _, err := New(Options{Kind: Generic, URL: address}); err == nil {
			t.Errorf("%q counted as an address", address)
		}
	}
	if _, err := New(Options{Kind: "x", URL: s.URL}); err == nil || !strings.Contains(err.Error(), "sglang") {
		t.Errorf("%v does not list the engines", err)
	}
}

// TestBodiesAreBounded stops reading an answer that does not end.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	if _, err := open(t, Generic, s.URL).Models(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error %v", err)
	}
}

func TestSelection(t *testing.T) {
	t.Parallel()
	models := []Model{
		{ID: "a:latest", Aliases: []string{"a"}, Warm: true, ContextLength: 10},
		{ID: "b:7b"},
		{ID: "j:latest", Aliases: []string{"j"}},
	}
	for _, c := range []struct {
		selection     Selection
		want, missing string
	}{
		{Selection{}, "a:latest a b:7b j:latest j", ""},
		{Selection{Only: []string{"a"}}, "a", ""},
		{Selection{Only: []string{"a", "a", "a:latest"}}, "a a:latest", ""},
		{Selection{Only: []string{"b"}}, "", "b"},
		{Selection{Only: []string{"b:7b", "x"}, Judges: []string{"x", "y"}}, "b:7b", "x y"},
		{Selection{Only: []string{"a", "b:7b", "a"}, Judges: []string{"a"}}, "a* b:7b", ""},
		{Selection{Judges: []string{"j"}}, "a:latest a b:7b j:latest* j*", ""},
	} {
		reported, missing := c.selection.Apply(models)
		var got []string
		for _, m := range reported {
			name := m.Id
			if len(m.Capabilities) == 1 && m.Capabilities[0] == CapabilityJudge {
				name += "*"
			}
			got = append(got, name)
			if (m.Id == "a") && (!m.IsWarm || m.ContextLength != 10) {
				t.Errorf("%+v lost what the engine says", m)
			}
		}
		if strings.Join(got, " ") != c.want || strings.Join(missing, " ") != c.missing {
			t.Errorf("%+v: got %q, missing %q, want %q and %q", c.selection, got, missing, c.want, c.missing)
		}
	}
}

// TestReportsAreValid holds that a registry can take whatever an engine lists: no empty
// or unprintable or endless name, none twice, no negative size.
func TestReportsAreValid(t *testing.T) {
	t.Parallel()
	reported, _ := Selection{}.Apply([]Model{
		{ID: ""}, {ID: "a", Aliases: []string{"a", "", "b", "b"}, Warm: true, ContextLength: -1}, {ID: "b"}, {ID: "a"}, {ID: "c"}, {ID: "d\n"}, {ID: strings.Repeat("e", maxName+1)},
	})
	var got []string
	for _, m := range reported {
		got = append(got, m.Id)
		if m.ContextLength < 0 || m.IsWarm != (m.Id != "c") {
			t.Errorf("%v", m)
		}
	}
	if strings.Join(got, " ") != "a b c" {
		t.Errorf("reported %q", got)
	}
}

// TestRedirects are not followed, so that the token and a model's name go to the address that the operator gave alone.
func TestRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent on", r.Method, r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(s.Close)
	e := open(t, Ollama, s.URL)
	if _, err := e.Models(t.Context()); err == nil || !strings.Contains(err.Error(), elsewhere.URL) {
		t.Errorf("error %v does not name the other address", err)
	}
	if err := e.(Loader).UnloadModel(t.Context(), "m"); err == nil {
		t.Error("a redirect counted as an unload")
	}
}

// TestThousandsOfModels are listed within the caller's time, though their settings are not told.
func TestThousandsOfModels(t *testing.T) {
	t.Parallel()
	const count = 5000
	var tags strings.Builder
	tags.WriteString(`{"models":[`)
	for i := range count {
		fmt.Fprintf(&tags, `{"name":"m%d:latest","digest":"%d"},`, i, i)
	}
	list := strings.TrimSuffix(tags.String(), ",") + "]}"
	ctx, cancel := context.WithCancel(t.Context())
	var shows atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/tags":
			io.WriteString(w, list)
		case "/api/ps":
			io.WriteString(w, `{"models":[]}`)
		default:
			io.Copy(io.Discard, r.Body)
			shows.Add(1)
			cancel() // the caller's time is over while the first is asked for
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	models, err := open(t, Ollama, s.URL).Models(ctx)
	if err != nil || len(models) != count || shows.Load() != 1 {
		t.Errorf("%d models, %v; %d settings asked for", len(models), err, shows.Load())
	}
}

// TestSlowEngine is given up though its answer goes on.
func TestSlowEngine(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"data":[`)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	if _, err := open(t, Generic, s.URL).Models(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
