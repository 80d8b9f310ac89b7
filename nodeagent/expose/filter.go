package expose

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxRequest bounds the body of a request: a long conversation with some images.
	maxRequest = 64 << 20
	// maxAnswer bounds an answer that does not stream, which is held in memory.
	maxAnswer = 64 << 20
	// bodyTimeout bounds the arrival of a request's body, that of a refused one, too: the server reads it before it answers.
	bodyTimeout = time.Minute
	// grace is how long requests are still taken when the schedule switches to 0 %: the gateway learns of it a moment later.
	grace = 5 * time.Second
	// padAfter is how long the engine may be silent before the first padding, and padEvery the time to the next. The tunnel
	// gives a silent answer up after 100 s. Padding fixes the status to 200, so it begins late.
	padAfter = 45 * time.Second
	padEvery = 30 * time.Second
)

// filter lets the two calls through that the gateway makes, and only with the access key.
type filter struct {
	engine      *url.URL
	engineToken string
	key         [sha256.Size]byte
	level       func() int
	log         *slog.Logger
	client      *http.Client
	inFlight    atomic.Int64

	mu sync.Mutex
	// closedSince is when the level was first seen at 0; zero while it is not.
	closedSince time.Time

	// The times are fields so that tests need not wait for them.
	grace, padAfter, padEvery, bodyTimeout time.Duration
}

func newFilter(engine *url.URL, engineToken, key string, level func() int, log *slog.Logger) *filter {
	base := *engine
	base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/v1")
	if level == nil {
		level = func() int { return 100 }
	}
	return &filter{
		engine: &base, engineToken: engineToken, key: sha256.Sum256([]byte(key)), level: level, log: log,
		client: &http.Client{
			Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: idleTimeout},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		grace: grace, padAfter: padAfter, padEvery: padEvery, bodyTimeout: bodyTimeout,
	}
}

// ServeHTTP implements http.Handler.
func (f *filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	// The deadline of the connection's last answer stays otherwise.
	_ = control.SetWriteDeadline(time.Now().Add(writeStall))
	_ = control.SetReadDeadline(time.Now().Add(f.bodyTimeout))
	if !f.authorized(r) {
		refuse(w, http.StatusUnauthorized, "the access key is missing or wrong")
		return
	}
	// Strangers do not count: a node that leaves waits for the requests of its gateway alone.
	f.inFlight.Add(1)
	defer f.inFlight.Add(-1)
	switch {
	case r.URL.Path == "/v1/models" && r.Method == http.MethodGet:
		f.forward(w, r, nil, false)
	case r.URL.Path == "/v1/chat/completions" && r.Method == http.MethodPost:
		f.chat(w, r)
	default:
		refuse(w, http.StatusNotFound, "this node serves POST /v1/chat/completions and GET /v1/models")
	}
}

// authorized compares hashes, so that neither the bytes nor the length of the key show in the time.
func (f *filter) authorized(r *http.Request) bool {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], f.key[:]) == 1 && found
}

// closed reports whether the schedule is at 0 % for longer than the grace.
func (f *filter) closed() bool {
	level := f.level()
	f.mu.Lock()
	defer f.mu.Unlock()
	if level > 0 {
		f.closedSince = time.Time{}
		return false
	}
	if f.closedSince.IsZero() {
		f.closedSince = time.Now()
	}
	return time.Since(f.closedSince) >= f.grace
}

// watch sees the level fall though no request comes.
func (f *filter) watch(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.closed()
		}
	}
}

func (f *filter) chat(w http.ResponseWriter, r *http.Request) {
	if f.closed() {
		refuse(w, http.StatusServiceUnavailable, "the owner's schedule has this node paused")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too large for this node")
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, "the request did not arrive whole")
		return
	}
	// A deadline that passes while the engine works would look like a client that left.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	var request struct {
		Stream json.RawMessage `json:"stream"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		refuse(w, http.StatusBadRequest, "the request is no JSON object")
		return
	}
	// Whatever else stands there the engine refuses in its own words.
	f.forward(w, r, body, string(request.Stream) == "true")
}

// forward asks the engine and passes its answer on.
func (f *filter) forward(w http.ResponseWriter, r *http.Request, body []byte, stream bool) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	//nolint:gosec // the host is the operator's, and ServeHTTP lets two paths through
	out, err := http.NewRequestWithContext(ctx, r.Method, f.engine.JoinPath(r.URL.Path).String(), bytes.NewReader(body))
	if err != nil {
		refuse(w, http.StatusBadGateway, "the engine cannot be asked")
		return
	}
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
	}
	out.Header.Set("Accept", r.Header.Get("Accept"))
	if f.engineToken != "" {
		out.Header.Set("Authorization", "Bearer "+f.engineToken)
	}
	a := &answer{w: w, stream: stream, every: f.padEvery}
	//nolint:gosec // as above
	resp, err := awaitWith(a, f.padAfter, func() (*http.Response, error) { return f.client.Do(out) })
	if err != nil {
		if r.Context().Err() == nil {
			f.log.Warn("the engine did not answer a request", "error", err.Error())
			a.fail(http.StatusBadGateway, "the engine does not answer")
		}
		return
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.passStream(resp)
		return
	}
	whole, err := awaitWith(a, f.padAfter, func() ([]byte, error) { return io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)) })
	switch {
	case r.Context().Err() != nil:
	case err != nil:
		a.fail(http.StatusBadGateway, "the engine broke its answer off")
	case len(whole) > maxAnswer:
		a.fail(http.StatusBadGateway, "the engine's answer is too large")
	default:
		a.passWhole(resp, whole)
	}
}

// refuse answers as OpenAI's API does.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorBody(status, message))
}

func errorBody(status int, message string) []byte {
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": message, "type": "node_error", "param": nil, "code": status,
	}})
	if err != nil {
		return []byte(`{"error":{"message":"the node failed"}}`)
	}
	return body
}
