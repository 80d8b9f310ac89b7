package nodeagent

import (
	"context"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
)

const (
	// DefaultSweep is how long a replica of the gateway may act on an old state of the node, unless the gateway says another
	// time.
	DefaultSweep = 15 * time.Second
	// longestSweep bounds what the gateway may ask for.
	longestSweep = 5 * time.Minute
	// drainLimit is how long requests may take to end.
	drainLimit = 10 * time.Minute
	// drainPoll is the time between the heartbeats of a node that leaves: it only waits for the last request.
	drainPoll = 2 * time.Second
	// finishPoll is the time between two looks at the tunnel's requests, which cost nothing.
	finishPoll = time.Second
	// drainAway is how long a gateway that does not answer is waited for.
	drainAway = 30 * time.Second
	// hurryTimeout bounds the last call of an agent that leaves at once.
	hurryTimeout = 2 * time.Second
)

func (a *Agent) setSweep(seconds int32) {
	a.sweep = DefaultSweep
	if seconds > 0 {
		a.sweep = min(time.Duration(seconds)*time.Second, longestSweep)
	}
}

// drain leaves the pool: no new requests, one sweep so that every replica knows, the last request done, unregistered. At
// the end of ctx it unregisters without waiting for anything.
func (a *Agent) drain(ctx context.Context) {
	a.Log.Info("leaving in " + a.sweep.String() + " at least, when the last request is done; a second signal leaves at once")
	a.view.load = engine.Load{} // the engine is not asked any more
	began := time.Now()
	answered, told := began, time.Time{}
	for time.Since(began) < drainLimit {
		resp, err := a.heartbeat(ctx, a.levelNow(), true)
		if ctx.Err() != nil {
			a.leaveAtOnce(ctx)
			return
		}
		switch {
		case err == nil && resp.GetRegisterAgain():
			return // the gateway has forgotten the node already
		case err == nil:
			answered = time.Now()
			if told.IsZero() {
				told = answered
			}
			if time.Since(told) >= a.sweep && resp.GetActiveProxyRequests() == 0 && a.exposedInFlight() == 0 {
				a.unregister(ctx)
				return
			}
		default:
			trouble := registry.Explain(err)
			if trouble.Cause == registry.Replaced {
				a.Log.Info("another run of the agent is the node now, leaving")
				return
			}
			a.complain(trouble.Text)
			if trouble.Cause != registry.Away || time.Since(answered) >= drainAway {
				return
			}
		}
		select {
		case <-ctx.Done():
			a.leaveAtOnce(ctx)
			return
		case <-time.After(min(a.interval, drainPoll)):
		}
	}
	a.Log.Warn("requests are still running, leaving all the same", "after", drainLimit.String())
	a.unregister(ctx)
}

// leaveAtOnce unregisters after ctx has ended, so that the gateway sends nothing to an address that nobody serves.
func (a *Agent) leaveAtOnce(ctx context.Context) {
	a.Log.Warn("leaving at once: requests that are still running are cut off")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurryTimeout)
	defer cancel()
	a.unregister(ctx)
}

// finish waits for the requests in the tunnel where the drain ended before them: a gateway that refuses the node, or has
// forgotten it, or is away, still has its callers at the other end.
func (a *Agent) finish(ctx context.Context, began time.Time) {
	for a.exposedInFlight() > 0 && time.Since(began) < drainLimit {
		select {
		case <-ctx.Done():
			return
		case <-time.After(finishPoll):
		}
	}
}

func (a *Agent) exposedInFlight() int {
	if a.Exposure == nil {
		return 0
	}
	return a.Exposure.InFlight()
}

// unregister takes the node out of the registry. Where that fails the gateway forgets it by itself.
func (a *Agent) unregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := a.Registry.UnregisterNode(ctx, &ktmsv1.UnregisterNodeRequest{NodeId: a.NodeID, Instance: a.instance}); err != nil {
		a.Log.Warn("not unregistered: " + registry.Explain(err).Text)
		return
	}
	a.Log.Info("unregistered")
}
