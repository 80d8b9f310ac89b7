package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Readiness says whether traffic should come here. The database may be away for as long as cached keys stay valid:
// until then the server is degraded, not dead.
type Readiness struct {
	// Ping asks the database, on every probe and within Timeout.
	Ping    func(context.Context) error
	Timeout time.Duration
	// Grace is AUTH_STALE_IF_ERROR.
	Grace time.Duration

	mu         sync.Mutex
	lastAnswer time.Time
	draining   bool
}

// State is a probe's answer.
type State string

// The states, as /readyz spells them.
const (
	Ready       State = "ready"
	Degraded    State = "degraded"
	Unavailable State = "unavailable"
	Draining    State = "draining"
)

// Check asks the database.
func (r *Readiness) Check(ctx context.Context) State {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	err := r.Ping(ctx)

	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.draining:
		return Draining
	case err == nil:
		r.lastAnswer = time.Now()
		return Ready
	case r.Grace > 0 && time.Since(r.lastAnswer) < r.Grace:
		return Degraded
	default:
		return Unavailable
	}
}

// Drain makes every later probe fail, so that load balancers stop sending before the listener closes.
func (r *Readiness) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Draining reports whether Drain was called.
func (r *Readiness) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// probes serves /healthz and /readyz.
func probes(mux *http.ServeMux, version string, readiness *Readiness) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": version})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		state := readiness.Check(r.Context())
		code := http.StatusOK
		if state == Unavailable || state == Draining {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, map[string]string{"status": string(state)})
	})
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // the prober is gone when this fails
}
