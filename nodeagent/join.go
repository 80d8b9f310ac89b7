package nodeagent

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/registry"
)

const (
	// firstPause is the pause after the first failure, and every further failure doubles it.
	firstPause = 5 * time.Second
	// refusedPause is the longest pause after a refusal: somebody has to act first.
	refusedPause = 5 * time.Minute
	// awayPause is the longest pause while the gateway cannot be reached: it comes back by itself.
	awayPause = 30 * time.Second
	// enginePause is the longest pause while the engine does not answer. It is on the same machine, so asking costs little.
	enginePause = 15 * time.Second
	// jitter is the share by which a pause varies, so that the nodes of a gateway do not all come at once.
	jitter = 0.2
	// maxReasons is how many refused models are named in the log.
	maxReasons = 5
)

// backoff is a pause that grows.
type backoff struct{ last time.Duration }

func (b *backoff) reset() { b.last = 0 }

// most makes the next pause the longest one, and returns it.
func (b *backoff) most(longest time.Duration) time.Duration {
	b.last = longest
	return longest
}

// next is the next pause, of at most longest.
func (b *backoff) next(longest time.Duration) time.Duration {
	b.last = min(max(2*b.last, firstPause), longest)
	return time.Duration(float64(b.last) * (1 - jitter*rand.Float64()))
}

// join brings the node into the pool, however long it takes. It returns false when ctx ended.
func (a *Agent) join(ctx, work context.Context, pauses *backoff) bool {
	longest := time.Duration(0)
	switch {
	case a.replaced:
		// Two agents must not take the node from each other every few seconds.
		a.replaced = false
		longest = pauses.most(refusedPause)
	case !a.joined.IsZero() && time.Since(a.joined) < a.interval:
		// A gateway that forgets the node as soon as it has registered must not be asked without end.
		longest = awayPause
	}
	for ctx.Err() == nil {
		if longest == 0 {
			longest = a.tryJoin(ctx, work)
		}
		if ctx.Err() != nil {
			return false
		}
		if longest == 0 {
			return true
		}
		pause := pauses.next(longest)
		a.Log.Info("trying again", "in", pause.Round(time.Second).String(), "because", a.said)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		longest = 0
	}
	return false
}

// tryJoin asks the gateway whether it would take the node, opens the tunnel only then, and registers. It returns 0 when
// the node is registered, and else the longest pause before the next try.
func (a *Agent) tryJoin(ctx, work context.Context) time.Duration {
	a.observe(ctx)
	switch {
	case a.view.err != nil && (a.view.gone || len(a.view.models) == 0): // a hiccup takes nothing from what is known
		a.complain("the engine cannot serve: " + a.view.err.Error())
		return enginePause
	case len(a.view.models) == 0:
		a.complain("the engine has no model to report" + a.view.missingText())
		return enginePause
	}
	if longest := a.check(ctx); longest != 0 {
		return longest
	}
	address := a.expose(ctx, work)
	if address == "" {
		return awayPause
	}
	// What is registered must be known here, so the end of ctx does not cut this call off.
	call, cancel := context.WithTimeout(work, callTimeout)
	defer cancel()
	req := &ktmsv1.RegisterNodeRequest{
		NodeId: a.NodeID, Name: a.Name, Engine: a.Kind, Endpoint: address, AuthToken: a.token(), Models: a.view.models,
		BaseWeight: a.BaseWeight, MaxConcurrent: a.MaxConcurrent, Gpus: a.GPUs(ctx), AgentVersion: a.Version,
		Instance: a.instance,
	}
	if a.Schedule != nil {
		req.LevelPercent = new(int32(a.levelNow()))
	}
	resp, err := a.Registry.RegisterNode(call, req)
	if err != nil {
		return a.failed(err)
	}
	a.known, a.registered, a.joined, a.said = true, address, time.Now(), ""
	a.levels = resp.GetSupportsLevels()
	a.setInterval(resp.GetHeartbeatIntervalSeconds())
	a.setSweep(resp.GetSweepIntervalSeconds())
	a.Log.Info("registered", "node_id", a.NodeID, "endpoint", address, "models", a.view.names(), "interval", a.interval.String())
	if ignored := resp.GetIgnoredModels(); len(ignored) > 0 {
		a.Log.Warn("the node key does not allow all models, the others are served", "ignored", ignored)
	}
	a.warnUncatalogued(resp.GetUncataloguedModels())
	if a.Schedule != nil && !a.levels {
		a.Log.Warn("the gateway does not know load levels: it sends requests at 100%, whatever the schedule says")
	}
	return 0
}

// warnUncatalogued says once which models no request reaches. The node is registered all the same: an administrator may
// add them at any time.
func (a *Agent) warnUncatalogued(models []string) {
	models = a.view.unreached(models)
	if slices.Equal(models, a.uncatalogued) {
		return
	}
	a.uncatalogued = slices.Clone(models)
	if len(models) == 0 {
		a.Log.Info("requests reach all of the node's models")
		return
	}
	a.Log.Warn("requests reach these models only once an administrator adds them with UpsertModel, vendor local, under exactly this id",
		"models", models)
}

// check asks the gateway for its opinion before anything is opened or stored.
func (a *Agent) check(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := a.Registry.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: a.NodeID, Models: a.view.names()})
	if err != nil {
		if cause := registry.Explain(err).Cause; cause == registry.Unknown || cause == registry.Old {
			return 0 // registering will tell
		}
		return a.failed(err)
	}
	verdicts := resp.GetVerdicts()
	allowed := func(v *ktmsv1.ModelVerdict) bool { return v.GetAllowed() }
	if len(verdicts) == 0 || slices.ContainsFunc(verdicts, allowed) {
		return 0
	}
	var reasons []string
	for _, v := range verdicts[:min(len(verdicts), maxReasons)] {
		reason := v.GetReason()
		if reason == "" {
			reason = "model " + v.GetModel() + " is not permitted for this node key"
		}
		reasons = append(reasons, reason)
	}
	a.complain("the gateway takes none of the engine's models: " + strings.Join(reasons, "; "))
	return refusedPause
}

// failed logs why a call failed and returns the longest pause after it.
func (a *Agent) failed(err error) time.Duration {
	trouble := registry.Explain(err)
	a.complain(trouble.Text)
	if trouble.Cause == registry.Away {
		return awayPause
	}
	return refusedPause
}

// expose starts the exposure, once, and waits for an address. It returns none when ctx ended.
func (a *Agent) expose(ctx, work context.Context) (address string) {
	if a.Exposure == nil {
		return a.Endpoint
	}
	a.exposing.Do(func() { a.tasks.Go(func() { a.Exposure.Run(work) }) })
	for {
		if address = a.Exposure.Address(); address != "" {
			return address
		}
		select {
		case <-ctx.Done():
			return ""
		case <-a.Exposure.Changed():
		}
	}
}
