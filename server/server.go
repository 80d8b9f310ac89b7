// Package server puts the doors together: one h2c port for gRPC, gRPC-Web and Connect, one for the OpenAI-compatible
// API and the probes, one for metrics.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/access"
	"github.com/ai-process/ktms/server/admin"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/server/gateway"
	"github.com/ai-process/ktms/server/noderegistry"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

const (
	// headerTimeout bounds reading a request's headers, so that idle strangers cannot hold connections.
	headerTimeout = 10 * time.Second
	// idleTimeout closes connections that clients keep open without use; longer than usual load balancers' own.
	idleTimeout = 3 * time.Minute
	// maxHeader is the most that a request's headers may take.
	maxHeader = 64 << 10
	// maxStreams is how many calls one HTTP/2 connection may have open at once.
	maxStreams = 1000
)

// Options is what a Server needs.
type Options struct {
	Store store.Store
	// Meter counts what limits are set on. Limits says how.
	Meter  pool.Meter
	Limits Limits
	Sealer admin.Sealer
	// Vendors are those that are spoken to, the local pool among them.
	Vendors map[string]vendors.Vendor
	// Nodes are the machines of the local pool. NodePool says how they are kept.
	Nodes    pool.Nodes
	NodePool NodePool
	// Version is what /healthz says.
	Version string
	Log     *slog.Logger
	Metrics *Metrics

	// GRPCAddr serves gRPC, gRPC-Web and Connect; HTTPAddr the OpenAI-compatible API and the probes; MetricsAddr the
	// metrics, empty for none.
	GRPCAddr, HTTPAddr, MetricsAddr string
	// APIEnabled serves /v1 on HTTPAddr; false leaves the probes alone.
	APIEnabled bool
	// APITimeout bounds reading a body and answering a call that is not streamed.
	APITimeout time.Duration
	// MaxBody and MaxMessage are the largest request of the HTTP and of the RPC door, in bytes.
	MaxBody, MaxMessage int64
	// CORSOrigins are the browsers' origins that may call the RPC door; "*" is any.
	CORSOrigins []string
	// ReflectionRequiresKey closes server reflection to strangers.
	ReflectionRequiresKey bool
	LegacyHeaders         bool

	// BootstrapKey is an implicit admin key; empty for none.
	BootstrapKey string
	// StaleIfError is how long verified keys outlive an outage of the database.
	StaleIfError time.Duration
	// StoreTimeout bounds one key check and one readiness probe.
	StoreTimeout time.Duration
	// ReloadEvery is the fallback poll for changes made elsewhere.
	ReloadEvery time.Duration
	// Breaker are the settings of circuit breakers and pauses.
	Breaker dispatch.HealthOptions
	// UpstreamTimeout ends an attempt from which nothing was heard for so long; 0 waits for ever.
	UpstreamTimeout time.Duration
	// ShutdownTimeout is what calls in flight get to finish.
	ShutdownTimeout time.Duration
}

// Limits are the operator's settings for rates, budgets and spend limits.
type Limits struct {
	// SpendClosed refuses calls under a spend limit while the meter does not answer; otherwise they go unmetered.
	SpendClosed bool
	// Grace is the part of a daily token budget that may be overdrawn; 0 or less is none.
	Grace float64
	// OutputReserve is how many tokens of answer a spend limit reserves where nothing bounds them.
	OutputReserve int64
	// Lease is how long a reservation outlives its replica; 0 is admit.DefaultLease.
	Lease time.Duration
}

// NodePool are the operator's settings for the machines of the local pool.
type NodePool struct {
	// Interval is how often a node shall send a heartbeat, and TTL how long it is believed to be there without.
	Interval, TTL time.Duration
	// Sweep is how often a replica looks for nodes that changed their state by themselves, to tell of it.
	Sweep time.Duration
	// CheckEndpoint judges the base URL that a node registers with, and returns it in one spelling.
	CheckEndpoint func(ctx context.Context, raw string, allowed []netip.Prefix) (string, error)
	// Weigh says how this replica sees each node for a model and a prompt.
	Weigh func(ctx context.Context, model string, prompt, maxOutput int64) ([]pool.Weighing, error)
	// Run keeps leases alive until ctx ends.
	Run func(ctx context.Context)
}

// Server is the whole product behind its listeners.
type Server struct {
	options   Options
	live      *routing.Live
	keys      *access.Authenticator
	readiness *Readiness
	admission *admit.Controller
	watch     *noderegistry.Watch
	doors     []*door
}

// door is one listener with what it serves.
type door struct {
	name     string
	addr     string
	server   *http.Server
	listener net.Listener
}

// New builds a server and loads the configuration. Nothing listens yet.
func New(ctx context.Context, options Options) (*Server, error) {
	options.Store = countedStore{options.Store, func(operation string) {
		options.Metrics.DependencyFailed(DependencyPostgres, operation)
	}}
	s := &Server{options: options}
	s.live = routing.NewLive(routing.Options{
		Store: options.Store, Open: s.openVendorKey, Log: options.Log,
		Unreadable: func(n int) {
			for range n {
				options.Metrics.DependencyFailed(DependencyKeyring, "open")
			}
		},
	})
	if err := s.live.Load(ctx); err != nil {
		return nil, err
	}
	s.keys = access.New(access.Options{
		Keys: options.Store, SeenUpTo: options.Store.Feed().SeenUpTo, BootstrapKey: options.BootstrapKey,
		StaleIfError: options.StaleIfError, Timeout: options.StoreTimeout, Log: options.Log,
	})
	s.readiness = &Readiness{Ping: options.Store.Ping, Timeout: options.StoreTimeout, Grace: options.StaleIfError}

	validator, err := status.NewValidator(hotMessages()...)
	if err != nil {
		return nil, fmt.Errorf("compile the validation rules: %w", err)
	}
	breaker := options.Breaker
	breaker.Changed = options.Metrics.Dispatch.CircuitChanged
	health := dispatch.NewHealth(breaker)
	seen := view{health, options.Vendors}
	s.admission = admit.New(admit.Options{
		Meter: options.Meter, FailClosed: options.Limits.SpendClosed, Grace: options.Limits.Grace,
		OutputReserve: options.Limits.OutputReserve, Lease: options.Limits.Lease, Throttled: options.Metrics.Throttled,
		Lost: func() { options.Metrics.DependencyFailed(DependencyRedis, "book") }, Log: options.Log,
	})
	service := gateway.New(gateway.Options{
		Table: s.live.Table, View: seen, Vendors: options.Vendors, Validator: validator, Log: options.Log, Admission: s.admission,
		Dispatcher: dispatch.New(dispatch.Options{Health: health, Metrics: options.Metrics.Dispatch, Log: options.Log,
			Timeout: options.UpstreamTimeout}),
	})
	control := admin.New(admin.Options{Store: options.Store, Sealer: options.Sealer, Applied: s.apply, Table: s.live.Table,
		View: seen, Spent: s.admission.Spent, Nodes: options.Nodes, NodeTTL: options.NodePool.TTL, Weigh: options.NodePool.Weigh,
		Validator: validator, Log: options.Log})
	machines := noderegistry.New(noderegistry.Options{
		Nodes: options.Nodes, CheckEndpoint: options.NodePool.CheckEndpoint, Interval: options.NodePool.Interval, TTL: options.NodePool.TTL,
		Sweep: options.NodePool.Sweep,
		InCatalogue: func(model string) bool {
			spec, known := s.live.Table().Model(model)
			return known && spec.GetVendor() == vendors.Local && spec.GetEnabled()
		},
		Seal:      func(nodeID string, plain []byte) []byte { return admin.SealNodeToken(options.Sealer, nodeID, plain) },
		Validator: validator, Log: options.Log,
	})
	s.watch = noderegistry.NewWatch(noderegistry.WatchOptions{Nodes: options.Nodes, Every: options.NodePool.Sweep,
		TTL: options.NodePool.TTL, Counted: options.Metrics.Nodes, Log: options.Log})

	s.doors = []*door{
		{name: "grpc", addr: options.GRPCAddr, server: s.rpcDoor(gateway.NewHandler(service), control, machines)},
		{name: "http", addr: options.HTTPAddr, server: s.httpDoor(service)},
	}
	if options.MetricsAddr != "" {
		s.doors = append(s.doors, &door{name: "metrics", addr: options.MetricsAddr, server: s.metricsDoor()})
	}
	return s, nil
}

// view is what routing sees of the moment.
type view struct {
	*dispatch.Health
	speaking map[string]vendors.Vendor
}

// Speaks implements routing.View.
func (v view) Speaks(vendor string) bool { return v.speaking[vendor] != nil }

// Absent implements routing.View.
func (v view) Absent(model string) string {
	if machines, is := v.speaking[vendors.Local].(vendors.Pool); is {
		return machines.Absent(model)
	}
	return ""
}

// hotMessages are compiled at start, so that the first calls do not pay for it.
func hotMessages() []proto.Message {
	return []proto.Message{&ktmsv1.GenerateTextRequest{}, &ktmsv1.GetEmbeddingsRequest{}}
}

func (s *Server) openVendorKey(row store.VendorKey) (vendors.Secret, error) {
	plain, err := s.options.Sealer.Open(row.Sealed, row.AAD())
	if err != nil {
		return vendors.Secret{}, err
	}
	return vendors.NewSecret(string(plain)), nil
}

// apply puts a change made here into force before its caller is answered.
func (s *Server) apply(ctx context.Context, change store.Change) {
	s.keys.Apply(change)
	_ = s.live.Reload(ctx, change.Version) // logged there; Run tries again
}

// deliver follows a change made elsewhere.
func (s *Server) deliver(change store.Change) {
	s.keys.Apply(change)
	s.live.Notify(change)
}

// Listen opens every listener, so that errors come before anything is promised.
func (s *Server) Listen() error {
	for _, d := range s.doors {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", d.addr)
		if err != nil {
			s.Close()
			return fmt.Errorf("%s door: %w", d.name, err)
		}
		d.listener = listener
	}
	return nil
}

// Addr returns the address on which a door ("grpc", "http", "metrics") listens, or "".
func (s *Server) Addr(name string) string {
	for _, d := range s.doors {
		if d.name == name && d.listener != nil {
			return d.listener.Addr().String()
		}
	}
	return ""
}

// Run serves until ctx ends, then lets calls in flight finish. Listen must have succeeded.
func (s *Server) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var workers sync.WaitGroup
	workers.Go(func() { s.options.Store.Feed().Run(background, s.deliver) })
	workers.Go(func() { s.live.Run(background, s.options.ReloadEvery) })
	workers.Go(func() { s.admission.Run(background) })
	workers.Go(func() { s.options.NodePool.Run(background) })
	workers.Go(func() { s.watch.Run(background) })
	defer workers.Wait()
	defer stop()

	failed := make(chan error, len(s.doors))
	for _, d := range s.doors {
		workers.Go(func() {
			if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s door: %w", d.name, err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
		s.options.Log.Info("shutting down", "timeout", s.options.ShutdownTimeout.String())
	case err = <-failed:
	}
	s.readiness.Drain()
	s.shutdown(context.WithoutCancel(ctx))
	return err
}

// shutdown closes the listeners at once and the connections as their calls end; what is left after the timeout is cut.
func (s *Server) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ShutdownTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, d := range s.doors {
		closing.Go(func() {
			if err := d.server.Shutdown(ctx); err != nil {
				s.options.Log.Warn("calls were cut at shutdown", "door", d.name, "error", err)
				_ = d.server.Close()
			}
		})
	}
	closing.Wait()
}

// Close releases listeners that Run never served.
func (s *Server) Close() {
	for _, d := range s.doors {
		if d.listener != nil {
			_ = d.listener.Close()
		}
	}
}

func (s *Server) metricsDoor() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.options.Metrics.Registry, promhttp.HandlerOpts{}))
	probes(mux, s.options.Version, s.readiness)
	return s.newHTTPServer(s.guarded(mux, func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, status.As(err).Message(), http.StatusInternalServerError)
	}))
}

// newHTTPServer sets no write timeout: a stream may take as long as its model does.
func (s *Server) newHTTPServer(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: handler, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
}
