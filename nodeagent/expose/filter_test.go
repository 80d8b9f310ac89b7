package expose

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const key = "the key"

// front puts a filter before a scripted engine. Padding begins at once, and comes often.
func front(t *testing.T, engine http.HandlerFunc, change func(*filter)) string {
	t.Helper()
	behind := httptest.NewServer(engine)
	t.Cleanup(behind.Close)
	base, err := url.Parse(behind.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	f := newFilter(base, "engine token", key, nil, slog.New(slog.DiscardHandler))
	f.padAfter, f.padEvery = time.Minute, time.Minute
	if change != nil {
		change(f)
	}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func impatient(f *filter) { f.padAfter, f.padEvery = 5*time.Millisecond, 5*time.Millisecond }

func send(t *testing.T, method, address, token, body string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	req.Header.Set("Cookie", "secret=1")
	req.Header.Set("X-Forwarded-For", "1.2.3.4")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(text) + "[" + err.Error() + "]", resp.Header
	}
	return resp.StatusCode, string(text), resp.Header
}

// TestWhatPasses lets two calls through and nothing else, with the key alone.
func TestWhatPasses(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	address := front(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		if r.Header.Get("Authorization") != "Bearer engine token" || r.Header.Get("Cookie") != "" || r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("the engine saw %v", r.Header)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	}, nil)
	bearer := "Bearer " + key
	for _, c := range []struct {
		method, path, token, body string
		status                    int
		want                      string
	}{
		{"GET", "/v1/models", bearer, "", 200, "GET /v1/models "},
		{"POST", "/v1/chat/completions", bearer, `{"model":"m"}`, 200, `POST /v1/chat/completions {"model":"m"}`},
		{"GET", "/v1/models?x=1", bearer, "", 200, "GET /v1/models "},
		{"GET", "/v1/models", "", "", 401, "access key"},
		{"GET", "/v1/models", "Bearer ", "", 401, "access key"},
		{"GET", "/v1/models", "Bearer the kez", "", 401, "access key"},
		{"GET", "/v1/models", "Bearer the key ", "", 200, "GET /v1/models "}, // net/http trims
		{"GET", "/v1/models", key, "", 401, "access key"},
		{"GET", "/v1/models", "Basic " + key, "", 401, "access key"},
		{"DELETE", "/api/delete", "", "", 401, "access key"},
		{"GET", "/", bearer, "", 404, "this node serves"},
		{"GET", "/v1/models/m", bearer, "", 404, "this node serves"},
		{"POST", "/v1/models", bearer, "{}", 404, "this node serves"},
		{"GET", "/v1/chat/completions", bearer, "", 404, "this node serves"},
		{"POST", "/v1/chat/completions/", bearer, "{}", 404, "this node serves"},
		{"POST", "/v1/embeddings", bearer, "{}", 404, "this node serves"},
		{"POST", "/api/pull", bearer, "{}", 404, "this node serves"},
		{"DELETE", "/api/delete", bearer, "{}", 404, "this node serves"},
		{"POST", "/v1/chat/completions/../../api/pull", bearer, "{}", 404, "this node serves"},
		{"POST", "/v1/chat%2Fcompletions/%2e%2e/x", bearer, "{}", 404, "this node serves"},
		{"POST", "//v1/chat/completions", bearer, "{}", 404, "this node serves"},
		{"POST", "/v1/chat/completions", bearer, `{"stream":"yes"}`, 200, `POST /v1/chat/completions {"stream":"yes"}`}, // the engine's to refuse
		{"POST", "/v1/chat/completions", bearer, `{"stream":null}`, 200, "null"},
		{"POST", "/v1/chat/completions", bearer, "[]", 400, "no JSON object"},
		{"POST", "/v1/chat/completions", bearer, "{", 400, "no JSON"},
		{"POST", "/v1/chat/completions", bearer, "", 400, "no JSON"},
	} {
		before := seen.Load()
		status, text, _ := send(t, c.method, address+c.path, c.token, c.body)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s with %q: %d %q, want %d %q", c.method, c.path, c.token, status, text, c.status, c.want)
		}
		if reached := seen.Load() > before; reached != (c.status == 200) {
			t.Errorf("%s %s with %q reached the engine: %v", c.method, c.path, c.token, reached)
		}
		if c.status != 200 {
			var e struct{ Error struct{ Code int } }
			if err := json.Unmarshal([]byte(text), &e); err != nil || e.Error.Code != c.status {
				t.Errorf("%q is no error object", text)
			}
		}
	}
}

func TestLargeRequest(t *testing.T) {
	t.Parallel()
	address := front(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }, nil)
	body := `{"x":"` + strings.Repeat("x", maxRequest) + `"}`
	if status, text, _ := send(t, "POST", address+"/v1/chat/completions", "Bearer "+key, body); status != 413 {
		t.Errorf("%d %q", status, text)
	}
}

// TestEngineStatus passes on what the engine says, and says what it does not.
func TestEngineStatus(t *testing.T) {
	t.Parallel()
	address := front(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "busy"):
			w.Header().Set("Retry-After", "3")
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"error":{"message":"busy"}}`)
		case strings.Contains(string(body), "moved"):
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		default:
			panic(http.ErrAbortHandler)
		}
	}, nil)
	status, text, header := send(t, "POST", address+"/v1/chat/completions", "Bearer "+key, `{"model":"busy"}`)
	if status != 503 || text != `{"error":{"message":"busy"}}` || header.Get("Retry-After") != "3" || header.Get("Set-Cookie") != "" {
		t.Errorf("%d %q %v", status, text, header)
	}
	if status, text, header := send(t, "POST", address+"/v1/chat/completions", "Bearer "+key, `{"model":"moved"}`); status != 302 || header.Get("Location") != "" {
		t.Errorf("a redirect was followed or passed on: %d %q", status, text)
	}
	if status, text, _ := send(t, "POST", address+"/v1/chat/completions", "Bearer "+key, `{}`); status != 502 || !strings.Contains(text, "does not answer") {
		t.Errorf("%d %q", status, text)
	}
}

// TestSlowAnswers are padded, and stay what they are.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	address := front(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		<-release
		switch {
		case strings.Contains(string(body), "wrong"):
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":"no such thing"}`)
		case strings.Contains(string(body), "dead"):
			panic(http.ErrAbortHandler)
		case strings.Contains(string(body), `"stream":true`):
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"a\":1}\n\ndata: [DONE]\n\n")
		default:
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"answer":42}`)
		}
	}, impatient)
	for _, c := range []struct{ body, prefix, end, kind string }{
		{`{"model":"m"}`, "   ", `{"answer":42}`, "application/json"},
		{`{"model":"wrong"}`, "   ", `{"error":{"code":400,"message":"no such thing","param":null,"type":"node_error"}}`, "application/json"},
		{`{"model":"dead"}`, "   ", `{"error":{"code":502,"message":"the engine does not answer","param":null,"type":"node_error"}}`, "application/json"},
		{`{"stream":true}`, padStream + padStream, "data: {\"a\":1}\n\ndata: [DONE]\n\n", "text/event-stream"},
		{`{"stream":true,"model":"wrong"}`, padStream + padStream, "data: {\"error\":{\"code\":400,\"message\":\"no such thing\",\"param\":null,\"type\":\"node_error\"}}\n\n", "text/event-stream"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/chat/completions", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len(c.prefix)) // the padding arrives while the engine is silent
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatal(err)
		}
		release <- struct{}{}
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		text := string(first) + string(rest)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != c.kind || !strings.HasPrefix(text, c.prefix) || !strings.HasSuffix(text, c.end) {
			t.Errorf("%s: %d %s %q, %v", c.body, resp.StatusCode, resp.Header.Get("Content-Type"), text, err)
		}
		if c.kind == "application/json" && !json.Valid([]byte(text)) {
			t.Errorf("%q is no JSON", text)
		}
	}
}

// TestStreamsPass event by event, padded between lines alone.
func TestStreamsPass(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	address := front(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for piece := range next {
			if piece == "break" {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, piece)
			http.NewResponseController(w).Flush()
		}
	}, func(f *filter) { f.padEvery = 20 * time.Millisecond })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/chat/completions", strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	go func() { next <- "data: 1\n\n" }()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	read := func() string {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	for line := read(); line != "data: 1\n"; line = read() {
		if line != padStream {
			t.Fatalf("got %q", line)
		}
	}
	for _, want := range []string{"\n", padStream, padStream} {
		if got := read(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	next <- "data: ab"
	next <- "c\n\n"
	for line := read(); line != "data: abc\n"; line = read() {
		if line != padStream {
			t.Fatalf("got %q", line)
		}
	}
	next <- "break"
	if rest, err := io.ReadAll(lines); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken stream ended with %q, %v", rest, err)
	}
}

// TestClientLeaves ends the engine's work when nobody wants it any more.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	asked, ended := make(chan struct{}), make(chan struct{})
	address := front(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // the server notices a lost client only after the body
		close(asked)
		<-r.Context().Done()
		close(ended)
	}, nil)
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	go func() {
		<-asked
		leave()
	}()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the engine goes on")
	}
}

// TestNothingStays of clients that leave at any moment, and of engines that break off.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	var held *filter
	address := front(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			http.NewResponseController(w).Flush()
		}
		if strings.Contains(string(body), "break") {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}, func(f *filter) {
		held = f
		impatient(f)
	})
	for _, body := range []string{`{}`, `{"stream":true}`, `{"model":"break"}`, `{"stream":true,"model":"break"}`} {
		for i := range 10 {
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, _ = io.ReadFull(resp.Body, make([]byte, i)) // some leave before the first byte, some after it
				resp.Body.Close()
			}
			leave()
		}
	}
	eventually(t, "requests stay in flight", func() bool { return held.inFlight.Load() == 0 })
	eventually(t, "goroutines of the filter stay", func() bool {
		stacks := make([]byte, 8<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, fmt.Appendf(nil, "(*filter).ServeHTTP(%p", held)) && !bytes.Contains(stacks, []byte("awaitWith[...].func1"))
	})
}

// TestPaused serves for the grace and then refuses, until the level rises.
func TestPaused(t *testing.T) {
	t.Parallel()
	var level atomic.Int32
	address := front(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, func(f *filter) {
		f.level = func() int { return int(level.Load()) }
		f.grace = 300 * time.Millisecond
	})
	chat := func() int {
		status, _, _ := send(t, "POST", address+"/v1/chat/completions", "Bearer "+key, `{}`)
		return status
	}
	level.Store(1)
	if got := chat(); got != 200 {
		t.Errorf("at 1%%: %d", got)
	}
	level.Store(0)
	began := time.Now()
	if got := chat(); got != 200 && time.Since(began) < 300*time.Millisecond {
		t.Errorf("in the grace: %d", got)
	}
	deadline := time.Now().Add(time.Minute)
	for chat() != 503 {
		if time.Now().After(deadline) {
			t.Fatal("a paused node goes on serving")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if status, _, _ := send(t, "GET", address+"/v1/models", "Bearer "+key, ""); status != 200 {
		t.Errorf("models in the pause: %d", status)
	}
	level.Store(100)
	if got := chat(); got != 200 {
		t.Errorf("after the pause: %d", got)
	}
}
