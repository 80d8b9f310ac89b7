// Package nodes is the local pool as a vendor: it chooses a machine, takes a slot on it, calls its engine, and gives the
// slot back.
//
// One call of Generate, Stream or Embed visits one machine. An error names the machine where another one may do, and the
// walk along the plan comes again with the machines that it has tried. What the machines do with each other (whose turn it
// is, who has a slot) is pool.Nodes' affair, which replicas share; this package knows what one replica has learned by
// itself, and keeps the leases of its calls alive.
package nodes

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openai"
	"github.com/ai-process/ktms/vendors/transport"
)

// DefaultLease is how long a slot outlives a gateway that dies. It is renewed at a third of it, and
// every two seconds at least.
const DefaultLease = 30 * time.Second

// Options are what a Vendor needs.
type Options struct {
	Nodes pool.Nodes
	// Open unseals the bearer token of a node's engine.
	Open func(nodeID string, sealed []byte) (vendors.Secret, error)
	// TTL is how long a node is believed to be there without a heartbeat.
	TTL time.Duration
	// Lease is how long a slot lives without a renewal; 0 = DefaultLease.
	Lease time.Duration
	// Policy is how nodes are weighed.
	Policy selection.Policy
	// AllowLocal lets endpoints be on this machine or its link, for development.
	AllowLocal bool
	Limits     transport.Limits
	// Pulse says when a silent machine is asked whether it lives; zero values are the defaults.
	Pulse Pulse
	// Version of Keystone, for the User-Agent.
	Version string
	Log     *slog.Logger
}

// Vendor implements vendors.Vendor, Embedder and Pool. It is safe for concurrent use. Run has to be running, or leases end
// under calls that are longer than they.
type Vendor struct {
	options Options
	// dialect says what becomes of fields; each node has a dialect with connections of its own.
	dialect *openai.Vendor
	links   links
	lines   lines
	paces   paces
	live    live
	tasks   tasks
}

var (
	_ vendors.Vendor   = (*Vendor)(nil)
	_ vendors.Embedder = (*Vendor)(nil)
	_ vendors.Pool     = (*Vendor)(nil)
)

// New returns a Vendor.
func New(options Options) *Vendor {
	if options.Lease == 0 {
		options.Lease = DefaultLease
	}
	if options.Limits.Connect == 0 {
		options.Limits.Connect = transport.DefaultConnect
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	options.Pulse = options.Pulse.filled()
	return &Vendor{
		options: options, dialect: openai.New(openai.Options{Version: options.Version}),
		links: links{options: options, open: map[string]*link{}}, lines: lines{byModel: map[string]*line{}},
		paces: paces{known: map[place]selection.Pace{}}, live: live{visits: map[pool.ID]*visit{}},
	}
}

// CloseIdleConnections closes the connections that no call uses.
func (v *Vendor) CloseIdleConnections() {
	v.links.mu.Lock()
	defer v.links.mu.Unlock()
	for _, l := range v.links.open {
		l.carrier.CloseIdleConnections()
	}
}

// Fields implements vendors.Vendor.
func (v *Vendor) Fields(_, model string) vendors.Table { return v.dialect.Fields(vendors.Local, model) }

// Generate implements vendors.Vendor.
func (v *Vendor) Generate(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	visit, failed := v.enter(ctx, t, wantText(t, req))
	if failed != nil {
		return nil, failed
	}
	defer visit.leave()
	visit.begunSoon()
	answer, err := visit.link.dialect.Generate(visit.ctx, visit.target, req)
	if err != nil {
		return nil, visit.failed(err)
	}
	visit.succeeded(0)
	answer.Head.Node = visit.node.ID
	return answer, nil
}

// Stream implements vendors.Vendor.
func (v *Vendor) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		visit, failed := v.enter(ctx, t, wantText(t, req))
		if failed != nil {
			yield(vendors.Event{}, failed)
			return
		}
		defer visit.leave()
		visit.streamed = true
		output := int64(0)
		for event, err := range visit.link.dialect.Stream(visit.ctx, visit.target, req) {
			if err != nil {
				yield(vendors.Event{}, visit.failed(err))
				return
			}
			if event.Head != nil {
				event.Head.Node = visit.node.ID
			}
			visit.heard(event)
			if u := event.Chunk.GetUsage(); u != nil {
				output = u.GetOutput()
			}
			visit.handing.Store(true)
			more := yield(event, nil)
			visit.handing.Store(false)
			if !more {
				return
			}
		}
		visit.succeeded(output)
	}
}

// Embed implements vendors.Embedder.
func (v *Vendor) Embed(ctx context.Context, t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	visit, failed := v.enter(ctx, t, want{model: t.Model, prompt: t.Visit.PromptTokens})
	if failed != nil {
		return nil, failed
	}
	defer visit.leave()
	answer, err := visit.link.dialect.Embed(visit.ctx, visit.target, req)
	if err != nil {
		return nil, visit.failed(err)
	}
	visit.succeeded(0)
	return answer, nil
}

// Run renews the leases of calls and looks after machines that have gone silent, until ctx ends. Then it waits for what is
// still to be given back.
func (v *Vendor) Run(ctx context.Context) {
	renew := time.NewTicker(min(v.options.Lease/renewalsPerLease, maxRenewal))
	defer renew.Stop()
	pulse := time.NewTicker(v.options.Pulse.Look)
	defer pulse.Stop()
	catchUp := time.NewTicker(catchUpEvery)
	defer catchUp.Stop()
	for {
		select {
		case <-ctx.Done():
			v.tasks.close()
			v.repay(context.WithoutCancel(ctx))
			return
		case <-renew.C:
			v.tasks.spawn(func() { v.renew(ctx) })
		case <-catchUp.C:
			v.tasks.spawn(func() { v.catchUp(ctx) })
		case <-pulse.C:
			v.feel(ctx)
		}
	}
}

// tasks are goroutines that somebody waits for.
type tasks struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// spawn runs a function on a goroutine of its own, or at once when nobody waits any more.
func (t *tasks) spawn(f func()) {
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.running.Go(f)
	}
	t.mu.Unlock()
	if closed {
		f()
	}
}

func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
}
