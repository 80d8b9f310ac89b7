// Package nodeagent brings a machine into the gateway's pool: it registers the machine's engine, sends heartbeats with
// what the engine and the GPUs report, follows the owner's schedule, and leaves without dropping a request.
package nodeagent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
	"github.com/ai-process/ktms/nodeagent/schedule"
)

const (
	// DefaultInterval is the time between heartbeats unless the gateway says another.
	DefaultInterval = 5 * time.Second
	// shortestInterval and longestInterval bound what the gateway may ask for.
	shortestInterval = time.Second
	longestInterval  = time.Minute
	// callTimeout bounds one call to the gateway. A heartbeat that is lost leaves time for the next one before the gateway
	// takes the node for dead, 15 s after the last.
	callTimeout = 5 * time.Second
	// tick is how often the level is looked at, so that a pause begins and ends on time and not a heartbeat later.
	tick = time.Second
)

// Exposure puts the engine where the gateway can dial it.
type Exposure interface {
	// Run works until ctx ends.
	Run(ctx context.Context)
	// Address is the base URL that the gateway shall dial; empty while there is none.
	Address() string
	// Changed receives after the address changed.
	Changed() <-chan struct{}
	// Token is the bearer token that it wants.
	Token() string
	// InFlight is the number of requests that it serves now.
	InFlight() int
}

// Options are what the operator and the machine say.
type Options struct {
	NodeID, Name string
	// Kind is the engine's name in the registry.
	Kind      string
	Selection engine.Selection
	// Endpoint is the base URL that the gateway dials, and AuthToken what it must send along. Exposure replaces both.
	Endpoint, AuthToken       string
	BaseWeight, MaxConcurrent int32
	// Warmup is how long before the end of a pause models are loaded again.
	Warmup  time.Duration
	Version string

	Registry registry.Client
	Engine   engine.Engine
	// GPUs returns the latest reading without waiting for one; nil reads none.
	GPUs func(context.Context) []*ktmsv1.NodeGPU
	// Schedule returns the schedule in force; nil where none was asked for.
	Schedule func() *schedule.Schedule
	// Exposure is nil where the operator gave the endpoint.
	Exposure Exposure
	// Hurry is closed when the agent shall leave without waiting for its requests; nil never is.
	Hurry <-chan struct{}
	Log   *slog.Logger
}

// Agent is one node. Its fields belong to the goroutine of Run.
type Agent struct {
	Options

	// instance names this run, so that the gateway tells it from another one with the same node id.
	instance string
	view     view
	pause    pause
	interval time.Duration
	// sweep is how long a replica of the gateway may act on an old state of the node.
	sweep time.Duration
	// known says that the gateway knows the node, with the address that it registered at the time joined.
	known      bool
	registered string
	joined     time.Time
	// replaced says that another run of the agent took the node.
	replaced bool
	// levels says that the gateway honours levels.
	levels bool
	// state is what the gateway last said about the node.
	state ktmsv1.NodeState
	// uncatalogued are the models that no request reaches, as the gateway last said.
	uncatalogued []string
	// said is the last trouble, which is logged once.
	said string

	exposing sync.Once
	tasks    sync.WaitGroup
}

// New returns an agent. It does nothing before Run.
func New(o Options) *Agent {
	if o.GPUs == nil {
		o.GPUs = func(context.Context) []*ktmsv1.NodeGPU { return nil }
	}
	return &Agent{Options: o, instance: newInstance(), interval: DefaultInterval, sweep: DefaultSweep}
}

// instanceBytes is the length of an instance: two runs never draw the same one.
const instanceBytes = 16

func newInstance() string {
	id := make([]byte, instanceBytes)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// Run serves until ctx ends, and then leaves the pool: it returns when the gateway sends nothing any more, or soon after
// Hurry is closed. No refusal ends it, since whoever restarts the agent would not cure it.
func (a *Agent) Run(ctx context.Context) {
	// The requests that are running at the end need the tunnel until they are done.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer a.tasks.Wait()
	defer stop()
	leave, hurry := context.WithCancel(work)
	defer hurry()
	a.tasks.Go(func() {
		select {
		case <-a.Hurry:
			hurry()
		case <-leave.Done():
		}
	})
	var pauses backoff
	for a.join(ctx, work, &pauses) {
		a.serve(ctx, work, &pauses)
	}
	began := time.Now()
	if a.known {
		a.drain(leave)
	}
	a.finish(leave, began)
	a.Log.Info("stopped")
}

// serve sends heartbeats until the node has to join again, or ctx ends.
func (a *Agent) serve(ctx, work context.Context, pauses *backoff) {
	var changed <-chan struct{}
	if a.Exposure != nil {
		changed = a.Exposure.Changed()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var next time.Time // the time of the next heartbeat
	lost, level := 0, a.levelNow()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			next = time.Time{}
		case <-timer.C:
		}
		// Without an address the heartbeat says so. One for another address would praise the old one.
		if address := a.address(); address != "" && address != a.registered {
			a.Log.Info("the address changed, registering again", "endpoint", address)
			return
		}
		if now := a.levelNow(); now != level {
			a.Log.Info("the schedule switches", "from", level, "to", now)
			level, next = now, time.Time{}
		}
		if time.Now().Before(next) {
			timer.Reset(min(tick, time.Until(next)))
			continue
		}
		began := time.Now()
		trouble, again := a.beat(ctx, work, pauses)
		switch {
		case again:
			return
		case trouble:
			lost++
		default:
			lost = 0
		}
		next = began.Add(a.pace(lost))
		timer.Reset(min(tick, max(time.Until(next), 0)))
	}
}

// patience is how many lost heartbeats in a row keep the pace: a gateway that restarts shall find its nodes at once.
const patience = 12

// pace is the time between heartbeats.
func (a *Agent) pace(lost int) time.Duration {
	if lost > patience {
		return max(a.interval, awayPause)
	}
	return a.interval
}

// beat sends one heartbeat. It reports whether it was lost, and whether the node has to join again.
func (a *Agent) beat(ctx, work context.Context, pauses *backoff) (lost, again bool) {
	a.observe(ctx)
	level := a.levelNow()
	resp, err := a.heartbeat(ctx, level, false)
	if ctx.Err() != nil {
		return true, false
	}
	if err != nil {
		trouble := registry.Explain(err)
		if trouble.Cause == registry.Replaced {
			a.said = trouble.Text
			a.Log.Error(trouble.Text)
			a.known, a.replaced = false, true
			return true, true
		}
		a.complain(trouble.Text)
		switch trouble.Cause {
		case registry.Unknown, registry.Refused:
			a.known = false
			return true, true
		case registry.Away, registry.Old: // a gateway in the middle of an update may lack the call for a moment
		}
		return true, false
	}
	a.recovered()
	if resp.GetRegisterAgain() {
		a.Log.Info("the gateway asks for a new registration")
		a.known = false
		return false, true
	}
	pauses.reset()
	a.note(resp)
	a.follow(work, level, resp.GetActiveProxyRequests())
	return false, false
}

// heartbeat makes the call. A node that leaves is draining, and so is one that can serve nothing at the moment: the
// gateway puts it back as soon as a heartbeat says neither.
func (a *Agent) heartbeat(ctx context.Context, level int, leaving bool) (*ktmsv1.HeartbeatResponse, error) {
	trouble := a.trouble()
	req := &ktmsv1.HeartbeatRequest{
		NodeId:         a.NodeID,
		Instance:       a.instance,
		Draining:       leaving || trouble != "",
		Trouble:        trouble,
		ActiveRequests: a.view.load.Active,
		QueueDepth:     a.view.load.Queued,
		Models:         a.view.models,
		Gpus:           a.GPUs(ctx),
	}
	if a.Schedule != nil {
		req.LevelPercent = new(int32(level))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return a.Registry.Heartbeat(ctx, req)
}

// note takes over what the gateway says.
func (a *Agent) note(resp *ktmsv1.HeartbeatResponse) {
	a.setInterval(resp.GetHeartbeatIntervalSeconds())
	if state := resp.GetState(); state != a.state {
		a.state = state
		a.Log.Info("the gateway sees the node in a new state", "state", state.String(), "drained_by_admin", resp.GetDraining())
	}
}

func (a *Agent) setInterval(seconds int32) {
	if seconds > 0 {
		a.interval = min(max(time.Duration(seconds)*time.Second, shortestInterval), longestInterval)
	}
}

// levelNow is the level of the schedule; 100 without one.
func (a *Agent) levelNow() int {
	if a.Schedule == nil {
		return schedule.Full
	}
	return a.Schedule().Level(time.Now())
}

// address is where the gateway shall dial now; empty while that is nowhere.
func (a *Agent) address() string {
	if a.Exposure != nil {
		return a.Exposure.Address()
	}
	return a.Endpoint
}

func (a *Agent) token() string {
	if a.Exposure != nil {
		return a.Exposure.Token()
	}
	return a.AuthToken
}

// complain logs a trouble once.
func (a *Agent) complain(text string) {
	if text != a.said {
		a.said = text
		a.Log.Warn(text)
	}
}

// recovered says that the last trouble is over.
func (a *Agent) recovered() {
	if a.said != "" {
		a.said = ""
		a.Log.Info("the gateway answers again")
	}
}
