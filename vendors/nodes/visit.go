package nodes

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/guarded"
)

// visit is one call on a node, from the lease to its release.
type visit struct {
	v      *Vendor
	node   *pool.Node
	lease  pool.Lease
	warm   bool
	link   *link
	target vendors.Target
	ctx    context.Context
	cancel context.CancelCauseFunc

	started time.Time
	// another: the request has failed on other machines before.
	another bool
	// streamed: the answer comes in pieces.
	streamed bool
	// first is when the answer began; zero until then.
	first time.Time
	// last is when something was heard last, in nanoseconds since started.
	last atomic.Int64
	// handing: what was heard is on its way to the caller, and nobody waits for the node.
	handing atomic.Bool
	// begun: the pool was told that the prompt is read.
	begun atomic.Bool
	soon  *time.Timer

	outcome  pool.Outcome
	measured pool.Speed
	// served: the answer is whole, so that its time tells how long a request takes.
	served bool
}

// errGone is the cause of a call that ended because its machine does not answer any more.
var errGone = errors.New("the machine does not answer any more")

// enter takes a slot and prepares the call.
func (v *Vendor) enter(ctx context.Context, t vendors.Target, w want) (*visit, *vendors.Error) {
	got, failed := v.choose(ctx, t, w)
	if failed != nil {
		return nil, failed
	}
	c := &visit{v: v, node: got.node, lease: got.lease, warm: got.warm, link: v.links.to(got.node), started: time.Now(),
		another: len(t.Visit.Tried) > 0}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	if ctx.Err() != nil {
		c.leave()
		return nil, departed(ctx)
	}
	c.target = t
	c.target.BaseURL, c.target.Visit = got.node.Endpoint, vendors.Visit{}
	if got.node.Engine == vendors.Ollama {
		c.target.Vendor = vendors.Ollama // it has ways of its own: to switch thinking off, for one
	}
	if len(got.node.Token) > 0 {
		key, err := v.options.Open(got.node.ID, got.node.Token)
		if err != nil {
			c.outcome = pool.Failed
			c.leave()
			return nil, &vendors.Error{Kind: vendors.Denied, Vendor: vendors.Local, Node: got.node.ID, Unsent: true,
				Message: "the machine's token cannot be opened", Err: err}
		}
		c.target.Key = key
	}
	v.live.add(c)
	return c, nil
}

// heard notes an event of the answer.
func (c *visit) heard(event vendors.Event) {
	c.last.Store(int64(time.Since(c.started)))
	if event.Chunk == nil || !c.first.IsZero() || !vendors.HasContent(event.Chunk) {
		return
	}
	c.first = time.Now()
	c.tellBegun()
	ttft := c.first.Sub(c.started)
	if c.warm && !c.lease.Trial { // loading a model says nothing about reading a prompt
		c.measured.TTFT = ttft.Seconds()
		c.v.paces.learn(c.node.ID, c.lease.Model, ttft, c.lease.Ahead+c.lease.Queued)
	}
}

// tellBegun tells the pool that the prompt is read.
func (c *visit) tellBegun() {
	if c.begun.CompareAndSwap(false, true) {
		c.v.tasks.spawn(func() { _ = c.v.options.Nodes.Begun(context.Background(), c.lease) })
	}
}

// begunSoon is for an answer in one piece, which does not show when the prompt was read: that is predicted.
func (c *visit) begunSoon() {
	pace := c.v.paces.of(c.node.ID, c.lease.Model)
	if pace <= 0 {
		return
	}
	c.soon = time.AfterFunc(time.Duration(pace*float64(c.lease.Ahead+c.lease.Queued)*float64(time.Second)), c.tellBegun)
}

// minSpeedTokens is from how many tokens on an answer tells how quickly the node writes.
const minSpeedTokens = 8

// fastest is how many tokens in a second are believed. Whatever a machine counts, others are compared with it.
const fastest = 10_000

// succeeded notes a whole answer of so many tokens; 0 = they are not known, or did not come one by one.
func (c *visit) succeeded(output int64) {
	c.outcome, c.served = pool.Succeeded, true
	if c.first.IsZero() || output < minSpeedTokens {
		return
	}
	if speed := float64(output-1) / time.Since(c.first).Seconds(); speed <= fastest {
		c.measured.TPS = speed
	}
}

// failed judges what a call ended in, and says where another machine may do.
func (c *visit) failed(err error) *vendors.Error {
	e, known := errors.AsType[*vendors.Error](err)
	if !known {
		e = &vendors.Error{Kind: vendors.Unavailable, Err: err}
	}
	e.Vendor = vendors.Local
	if errors.Is(err, guarded.ErrForbidden) {
		e.Kind, e.Unsent, e.Message = vendors.Unavailable, true, "the machine's address is not allowed any more"
	}
	switch cause := context.Cause(c.ctx); {
	case errors.Is(cause, errGone):
		e = &vendors.Error{Kind: vendors.Unavailable, Vendor: vendors.Local, Message: "the machine went silent", Usage: e.Usage, Err: err}
	case errors.Is(cause, vendors.ErrSilent):
		e.Node, c.outcome = c.node.ID, pool.Failed
		return e
	case cause != nil: // the caller left
		if c.stalled() {
			c.outcome = pool.Failed
		}
		return e
	}
	uncarried := e.Status == 0 && (e.Kind == vendors.Unsupported || e.Kind == vendors.Invalid) // the dialect cannot carry it
	switch {
	case uncarried:
		c.outcome = pool.Unjudged
	case e.Kind == vendors.Unavailable, e.Kind == vendors.Denied:
		e.Node, c.outcome = c.node.ID, pool.Failed
		if c.another && e.Status >= http.StatusInternalServerError {
			c.outcome = pool.Unjudged // it may be the request: one that no engine survives must not take out all machines
		}
	case e.Kind == vendors.RateLimited:
		e.Node, c.outcome = c.node.ID, pool.Unjudged // others fill it
	case e.Kind == vendors.Overflow, e.Kind == vendors.Invalid:
		e.Node, c.outcome = c.node.ID, pool.Succeeded // another may take more, or be set up for what this one is not
	default:
		c.outcome = pool.Succeeded // it answers
	}
	e.Message = discreet(e, c.node)
	return e
}

// leave gives the slot back, off the caller's path.
func (c *visit) leave() {
	c.v.live.remove(c)
	if c.soon != nil {
		c.soon.Stop()
	}
	c.cancel(nil)
	busy := time.Since(c.started)
	if c.served {
		c.v.lines.served(c.lease.Model, busy)
	}
	release := pool.Release{Lease: c.lease, Outcome: c.outcome, Measured: c.measured,
		Idle: selection.Idle(c.node.MaxConcurrent, c.node.Level, busy)}
	c.v.tasks.spawn(func() {
		if err := c.v.options.Nodes.Release(context.Background(), release); err != nil {
			c.v.options.Log.Debug("a slot is given back later", "node", c.node.ID, "error", err)
			c.v.live.owe(owed{release, time.Now().Add(c.v.options.Lease)})
			return
		}
		c.v.lines.freed(c.lease.Model)
	})
}
