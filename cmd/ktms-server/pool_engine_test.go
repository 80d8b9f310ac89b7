package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// engineVariable makes this test binary serve as a scripted engine at an address instead of testing.
const engineVariable = "KTMS_TEST_SERVE_AS_ENGINE"

// poolModel is what all engines have, and manualModel what those that are an Ollama have beside: README.md asks for it.
const (
	poolModel   = "m"
	manualModel = "llama3.2"
)

// What a request's text asks of an engine: to be kept until the engine is told to let it go, before its first word or, of a
// stream, after it.
const (
	holdText  = "please hold the answer"
	beginText = "please begin and hold the rest"
)

// fault is what an engine does instead of answering.
type fault string

const (
	faultNone fault = ""
	// faultCut: the connection breaks before any answer.
	faultCut fault = "cut"
	// faultHalved: it breaks within the answer in one piece, or of a stream before its first content.
	faultHalved fault = "halved"
	// faultEnded: a stream ends in good order before its first content and without a finish reason, as that of a killed engine
	// may. An answer in one piece is empty.
	faultEnded fault = "ended"
	// faultDone: the same, and the stream says that it is done.
	faultDone fault = "done"
	// faultRefuses: 503.
	faultRefuses fault = "refuses"
	// faultGarbage: a page of a proxy.
	faultGarbage fault = "garbage"
)

// conduct is how an engine behaves from now on.
type conduct struct {
	Fault fault
	// Took is how long an answer takes.
	Took time.Duration
	// Release lets go what was held.
	Release bool
}

// books are what an engine has counted.
type books struct {
	// Open requests are not answered yet, Held are those that are kept, and Peak is the most that were open at one time.
	Open, Held, Peak int
	// Asked counts requests, Served whole answers.
	Asked, Served int
}

// scriptedEngine is the process side: it speaks enough of vLLM and of Ollama for an agent and a gateway.
type scriptedEngine struct {
	name string

	mu sync.Mutex
	conduct
	books
	hold chan struct{}
}

// serveEngine listens, says where, and serves for ever.
func serveEngine(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	e := &scriptedEngine{name: listener.Addr().String(), hold: make(chan struct{})}
	mux := http.NewServeMux()
	page := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	page("GET /health", "")
	page("GET /v1/models", `{"object":"list","data":[{"id":"`+poolModel+`","max_model_len":100000}]}`)
	var tags, loaded []string
	for _, model := range []string{poolModel, manualModel} {
		tags = append(tags, fmt.Sprintf(`{"name":"%s:latest","digest":"d"}`, model))
		loaded = append(loaded, fmt.Sprintf(`{"name":"%s:latest","digest":"d","size":1,"size_vram":1,"context_length":100000}`, model))
	}
	page("GET /api/tags", `{"models":[`+strings.Join(tags, ",")+`]}`)
	page("GET /api/ps", `{"models":[`+strings.Join(loaded, ",")+`]}`)
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("POST /v1/chat/completions", e.chat)
	mux.HandleFunc("POST /conduct", e.script)
	mux.HandleFunc("GET /books", func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		_ = json.NewEncoder(w).Encode(e.books)
	})
	fmt.Println("listens at " + e.name)
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

func (e *scriptedEngine) metrics(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = fmt.Fprintf(w, "vllm:num_requests_running{model_name=%q} %d\nvllm:num_requests_waiting{model_name=%q} 0\n", poolModel, e.Open, poolModel)
}

func (e *scriptedEngine) script(_ http.ResponseWriter, r *http.Request) {
	var to conduct
	if json.NewDecoder(r.Body).Decode(&to) != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conduct = to
	if to.Release {
		close(e.hold)
		e.hold = make(chan struct{})
	}
}

// begin counts a request in, and says what becomes of it.
func (e *scriptedEngine) begin() (conduct, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Asked++
	e.Open++
	e.Peak = max(e.Peak, e.Open)
	return e.conduct, e.hold
}

// end counts it out. That comes before the last word of the answer: whoever has read that takes the slot for free.
func (e *scriptedEngine) end(served bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Open--
	if served {
		e.Served++
	}
}

func (e *scriptedEngine) holding(change int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Held += change
}

const (
	engineHead = `{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	engineEnd  = `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`
)

// answer is the whole one, which names the engine.
func (e *scriptedEngine) answer() string {
	return fmt.Sprintf(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":9,"completion_tokens":2}}`, e.name)
}

func (e *scriptedEngine) chat(w http.ResponseWriter, r *http.Request) {
	c, hold := e.begin()
	served := false
	once := sync.OnceFunc(func() { e.end(served) })
	defer once()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	text := string(body)
	out := engineAnswer{ResponseWriter: w, stream: strings.Contains(text, `"stream":true`)}
	if c.Fault != faultNone {
		once()
		out.fail(c.Fault, e.answer())
		return
	}
	begins := out.stream && strings.Contains(text, beginText)
	if begins {
		out.events(engineHead, word(e.name))
	}
	if begins || strings.Contains(text, holdText) {
		e.holding(1)
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		e.holding(-1)
	} else {
		select {
		case <-time.After(c.Took):
		case <-r.Context().Done():
		}
	}
	if r.Context().Err() != nil {
		return
	}
	if out.stream && !begins {
		out.events(engineHead, word(e.name))
	}
	served = true
	once()
	if out.stream {
		out.events(engineEnd, "[DONE]")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, e.answer())
}

func word(text string) string {
	return fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, text)
}

// engineAnswer is one response.
type engineAnswer struct {
	http.ResponseWriter
	stream, begun bool
}

// events sends these, of a stream.
func (a *engineAnswer) events(data ...string) {
	if !a.begun {
		a.begun = true
		a.Header().Set("Content-Type", "text/event-stream")
	}
	for _, d := range data {
		_, _ = fmt.Fprintf(a, "data: %s\n\n", d)
	}
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// fail answers as a broken engine does.
func (a *engineAnswer) fail(how fault, whole string) {
	switch {
	case how == faultRefuses:
		a.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(a, `{"error":{"message":"out of memory"}}`)
	case how == faultGarbage:
		a.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(a, "<html>It works!</html>")
	case how == faultCut:
		panic(http.ErrAbortHandler)
	case a.stream:
		a.events(engineHead)
		if how == faultHalved {
			panic(http.ErrAbortHandler)
		}
		if how == faultDone {
			a.events("[DONE]")
		}
	case how == faultHalved:
		a.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = io.WriteString(a, whole[:len(whole)/2])
		_ = http.NewResponseController(a.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
}
