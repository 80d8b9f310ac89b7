package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	healthv1 "github.com/ai-process/ktms/api/gen/grpc/health/v1"
	"github.com/ai-process/ktms/api/gen/grpc/health/v1/healthv1connect"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

// watchInterval is how often a health watcher looks for a change.
const watchInterval = time.Second

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

// healthService is grpc.health.v1 over the same readiness.
type healthService struct{ readiness *Readiness }

var healthServices = map[string]bool{
	"": true, ktmsv1connect.GatewayServiceName: true, ktmsv1connect.AdminServiceName: true,
	ktmsv1connect.NodeRegistryServiceName: true,
}

func (h healthService) status(ctx context.Context) healthv1.HealthCheckResponse_ServingStatus {
	switch h.readiness.Check(ctx) {
	case Ready, Degraded:
		return healthv1.HealthCheckResponse_SERVING
	default:
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
}

// Check implements grpc.health.v1.Health.
func (h healthService) Check(ctx context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if !healthServices[req.GetService()] {
		return nil, connect.Errorf(connect.CodeNotFound, "unknown service %q", req.GetService())
	}
	return &healthv1.HealthCheckResponse{Status: h.status(ctx)}, nil
}

// Watch implements grpc.health.v1.Health: the state now, and then each change. An unknown service is reported as such
// and watched, as the protocol asks.
func (h healthService) Watch(ctx context.Context, req *healthv1.HealthCheckRequest, stream healthv1connect.HealthWatchServerStream) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := healthv1.HealthCheckResponse_UNKNOWN
	for {
		now := healthv1.HealthCheckResponse_SERVICE_UNKNOWN
		if healthServices[req.GetService()] {
			now = h.status(ctx)
		}
		if now != last {
			last = now
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
