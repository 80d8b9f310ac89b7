package nodeagent

import (
	"context"
	"time"

	"github.com/ai-process/ktms/nodeagent/engine"
)

const (
	// idleBeats is how many heartbeats in a row must say that no request is left before models are unloaded: another
	// replica may learn of the pause one heartbeat later.
	idleBeats = 2
	// keepBeyond is how long a model that was loaded before a window stays loaded without a request in it.
	keepBeyond = 10 * time.Minute
	// reloadPause is the pause after a load or unload that failed.
	reloadPause = 30 * time.Second
)

// pause is what the agent does with the engine's memory around a pause of the schedule.
type pause struct {
	// idle counts the heartbeats of this pause that found no request.
	idle int
	// cold says that the models were unloaded, and reload names those that come back.
	cold   bool
	reload []string
	// done is set while models are moved, and failed is when that last failed.
	done   chan moved
	failed time.Time
}

// moved is the end of a loading or unloading.
type moved struct {
	cold bool
	err  error
}

// follow unloads the models in a pause when the last request is done, and loads them before the next window. Engines
// that cannot do that only stop being routed to.
func (a *Agent) follow(work context.Context, level int, active int32) {
	loader, can := a.Engine.(engine.Loader)
	if !can || a.Schedule == nil {
		return
	}
	p := &a.pause
	p.collect(a)
	paused := level == 0 && !a.Schedule().OpensWithin(time.Now(), a.Warmup)
	switch {
	case !paused:
		p.idle = 0
		if p.cold && p.ready() {
			a.Log.Info("loading the models for the next window", "models", p.reload)
			keep, names := a.Warmup+keepBeyond, p.reload
			a.move(work, false, func(ctx context.Context) error {
				return each(names, func(name string) error { return loader.LoadModel(ctx, name, keep) })
			})
		}
	case active > 0 || !a.levels || (a.Exposure != nil && a.Exposure.InFlight() > 0):
		// A gateway that knows no levels goes on sending.
		p.idle = 0
	default:
		if p.idle++; p.idle >= idleBeats && !p.cold && p.ready() {
			warm := a.warmModels()
			p.reload = warm
			if len(warm) == 0 && len(a.Selection.Only) > 0 {
				p.reload = a.servedNames() // the agent began in a pause
			}
			a.Log.Info("the pause begins, unloading the models", "models", warm)
			a.move(work, true, func(ctx context.Context) error {
				return each(warm, func(name string) error { return loader.UnloadModel(ctx, name) })
			})
		}
	}
}

// ready reports whether models may be moved now.
func (p *pause) ready() bool {
	return p.done == nil && (p.failed.IsZero() || time.Since(p.failed) >= reloadPause)
}

// move runs beside the heartbeats, since loading takes minutes.
func (a *Agent) move(work context.Context, cold bool, run func(context.Context) error) {
	done := make(chan moved, 1)
	a.pause.done = done
	a.tasks.Go(func() { done <- moved{cold, run(work)} })
}

// collect takes in how the last move ended.
func (p *pause) collect(a *Agent) {
	select {
	case m := <-p.done:
		p.done, p.failed = nil, time.Time{}
		if m.err != nil {
			p.failed = time.Now()
			a.Log.Warn("the engine did not move its models, trying again", "error", m.err.Error())
			return
		}
		p.cold = m.cold
	default:
	}
}

// each stops at the first name that fails.
func each(names []string, do func(string) error) error {
	for _, name := range names {
		if err := do(name); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) warmModels() []string {
	var names []string
	for _, m := range a.view.served {
		if m.Warm {
			names = append(names, m.ID)
		}
	}
	return names
}

func (a *Agent) servedNames() []string {
	names := make([]string, 0, len(a.view.served))
	for _, m := range a.view.served {
		names = append(names, m.ID)
	}
	return names
}
