// Package expose puts an engine on a machine without a public address where the gateway can dial it: a filter in front of
// the engine, and a Cloudflare quick tunnel in front of the filter.
package expose

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// headerTimeout bounds the head of a request, and maxHeader its size.
	headerTimeout = 10 * time.Second
	maxHeader     = 64 << 10
	// idleTimeout is longer than the tunnel keeps an idle connection, so that it is the tunnel that closes it.
	idleTimeout = 2 * time.Minute
	// closeTimeout bounds the end of the requests that are left when the filter closes.
	closeTimeout = 5 * time.Second
)

// Options say what is exposed and how.
type Options struct {
	// Engine is the engine's address, with or without /v1, and EngineToken the bearer token that it wants.
	Engine, EngineToken string
	// Cloudflared is the program's path, or its name on the PATH.
	Cloudflared string
	// Level is the level of the schedule now; nil is always 100.
	Level func() int
	Log   *slog.Logger
}

// Exposure is a filter and its tunnel. It is safe for concurrent use.
type Exposure struct {
	options Options
	filter  *filter
	key     string
	// listener is open from the start, so that the filter has a port.
	listener net.Listener
	changed  chan struct{}

	mu      sync.Mutex
	address string
}

// Open listens on a loopback port for the tunnel. It starts no program yet. Close what Run does not.
func Open(ctx context.Context, o Options) (*Exposure, error) {
	base, err := url.Parse(o.Engine)
	if err != nil {
		return nil, fmt.Errorf("the engine's address %q is no URL: %w", o.Engine, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("no port for the tunnel: %w", err)
	}
	// 130 bits that live as long as the process: they reach the gateway as the node's auth token, and no disk or log.
	key := rand.Text()
	return &Exposure{
		options: o, key: key, listener: listener, changed: make(chan struct{}, 1),
		filter: newFilter(base, o.EngineToken, key, o.Level, o.Log),
	}, nil
}

// Run serves until ctx ends.
func (e *Exposure) Run(ctx context.Context) {
	server := &http.Server{
		Handler: e.filter, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(e.options.Log.Handler(), slog.LevelDebug),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(e.listener) })
	serving.Go(func() { e.filter.watch(ctx) })
	t := tunnel{program: e.options.Cloudflared, target: "http://" + e.listener.Addr().String(), secret: e.key, log: e.options.Log, moved: e.move}
	t.run(ctx)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close()
	}
	serving.Wait()
}

// Close frees the port of an exposure that never ran.
func (e *Exposure) Close() error { return e.listener.Close() }

// move takes over the tunnel's new address; empty while there is none.
func (e *Exposure) move(address string) {
	if address != "" {
		address += "/v1"
	}
	e.mu.Lock()
	e.address = address
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// Address is the base URL that the gateway shall dial; empty while there is none.
func (e *Exposure) Address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.address
}

// Changed receives after the address changed.
func (e *Exposure) Changed() <-chan struct{} { return e.changed }

// Token is the access key of this process.
func (e *Exposure) Token() string { return e.key }

// InFlight is the number of requests that the filter serves now.
func (e *Exposure) InFlight() int { return int(e.filter.inFlight.Load()) }
