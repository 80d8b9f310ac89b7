// Package admit decides whether an attempt may be made, and books what it came to: rates, budgets and spend limits on the
// counters of package pool, with prices, and with estimates of tokens where nobody counted them.
//
// A Controller serves the process, an Account one client call, a Ticket one attempt at a vendor.
package admit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/status"
)

// Limits is what the configuration of the moment allows. Amounts are in nano-USD; 0 is no limit.
type Limits interface {
	// SpendCap is the cap of a subject ("key" or "user") in a period ("day" or "month").
	SpendCap(subjectType, subjectID, period string) int64
	// UserRate is what a user may ask of a model in a minute, and how much more at once (see pool.Rate).
	UserRate(userID, modelID string) (rpm, burst int32)
	// TeamBudget is the cap of a team in a month.
	TeamBudget(teamID string) int64
}

// DefaultLease is how long a reservation lives without a sign of life from its replica: how long a crash keeps a cap
// eaten. It outlives a restart of Redis and a pause of the process.
const DefaultLease = 30 * time.Second

// Options is what a Controller needs.
type Options struct {
	Meter pool.Meter
	// FailClosed refuses calls under a spend limit while the meter does not answer.
	FailClosed bool
	// Grace is the part of a daily token budget that may be overdrawn; 0 is none.
	Grace float64
	// OutputReserve is how many tokens of answer are reserved where nothing bounds them.
	OutputReserve int64
	// Lease is DefaultLease if it is 0.
	Lease time.Duration
	// Lost is told of each attempt that could not be booked.
	Lost func()
	// Throttled is told of each call that a limit kept from a model, once for each reason.
	Throttled func(status.Reason)
	Log       *slog.Logger
	// Now is the clock for prices; nil is time.Now.
	Now func() time.Time
}

// Controller admits calls. It is safe for concurrent use. Run keeps its reservations alive and books what calls came to.
type Controller struct {
	options Options
	bookkeeper

	mu sync.Mutex
	// live are the attempts that hold reservations.
	live map[*Ticket]struct{}
	// open counts the accounts that may still book.
	open int
	// draining: Run waits on idle for the last of them.
	draining bool
	idle     chan struct{}
}

// New returns a Controller.
func New(options Options) *Controller {
	if options.Lease == 0 {
		options.Lease = DefaultLease
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Lost == nil {
		options.Lost = func() {}
	}
	if options.Throttled == nil {
		options.Throttled = func(status.Reason) {}
	}
	return &Controller{options: options, bookkeeper: newBookkeeper(options.Meter, options.Log, options.Lost), live: map[*Ticket]struct{}{},
		idle: make(chan struct{})}
}

// Open begins a client call. Close ends it.
func (c *Controller) Open(call Call) *Account {
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
	return &Account{c: c, call: call}
}

func (c *Controller) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.rest()
}

// rest tells await that no account is open. One may open after that, behind a shutdown that was forced. The caller holds
// the lock.
func (c *Controller) rest() {
	if c.draining && c.open == 0 {
		c.draining = false
		close(c.idle)
	}
}

// Run works until ctx ends, and then until every call has been booked, within the time that drainTimeout gives.
func (c *Controller) Run(ctx context.Context) {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var workers sync.WaitGroup
	workers.Go(func() { c.renewLeases(working) })
	for range bookingWorkers {
		workers.Go(func() { c.book(working) })
	}
	for range failedWorkers {
		workers.Go(func() { c.bookFailed(working) })
	}
	<-ctx.Done()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	c.await(patience)
	c.drain(patience)
	stop()
	workers.Wait()
	c.giveUp()
}

// await returns once every account is closed, or when ctx ends.
func (c *Controller) await(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.rest()
	c.mu.Unlock()
	select {
	case <-c.idle:
	case <-ctx.Done():
		c.options.Log.Warn("calls are still open at the end of the process; their reservations end by themselves")
	}
}

// renewLeases keeps the reservations of running calls alive.
func (c *Controller) renewLeases(ctx context.Context) {
	// Three tries within a lease: one may be lost.
	ticks := time.NewTicker(c.options.Lease / 3)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		c.mu.Lock()
		attempts := make([]pool.Renewal, 0, len(c.live))
		for t := range c.live {
			attempts = append(attempts, pool.Renewal{ID: t.id, Bookings: t.bookings})
		}
		c.mu.Unlock()
		if len(attempts) > 0 {
			_ = c.options.Meter.Renew(ctx, attempts, c.options.Lease) // counted by the pool; the next tick tries again
		}
	}
}

func (c *Controller) hold(t *Ticket) {
	c.mu.Lock()
	c.live[t] = struct{}{}
	c.mu.Unlock()
}

func (c *Controller) release(t *Ticket) {
	c.mu.Lock()
	delete(c.live, t)
	c.mu.Unlock()
}
