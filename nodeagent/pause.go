package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// unloaded says that the models of this pause are out of memory.
	unloaded bool
	// reload names the models that come back into memory before the next window.
	reload []string
	// done is set while models are moved, and failed is when that last failed.
	done   chan moved
	failed time.Time
}

// moved is the end of a loading or unloading.
type moved struct {
	unloaded bool
	err      error
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
		p.idle, p.unloaded = 0, false
		if len(p.reload) > 0 && p.ready() {
			a.Log.Info("loading the models for the next window", "models", p.reload)
			keep := a.Warmup + keepBeyond
			a.move(work, false, p.reload, func(ctx context.Context, name string) error { return loader.LoadModel(ctx, name, keep) })
		}
	case active > 0 || !a.levels || a.exposedInFlight() > 0:
		// A gateway that knows no levels goes on sending.
		p.idle = 0
	default:
		if p.idle++; p.idle >= idleBeats && !p.unloaded && p.ready() {
			warm := a.warmModels()
			p.remember(warm)
			if len(p.reload) == 0 && len(a.Selection.Only) > 0 {
				p.remember(a.servedNames()) // the agent began in a pause
			}
			a.Log.Info("the pause begins, unloading the models", "models", warm)
			a.move(work, true, warm, loader.UnloadModel)
		}
	}
}

// remember adds models that come back. Those of an earlier try stay: the ones that it moved are not warm any more.
func (p *pause) remember(names []string) {
	for _, name := range names {
		if !slices.Contains(p.reload, name) {
			p.reload = append(p.reload, name)
		}
	}
}

// ready reports whether models may be moved now.
func (p *pause) ready() bool {
	return p.done == nil && (p.failed.IsZero() || time.Since(p.failed) >= reloadPause)
}

// move runs beside the heartbeats, since loading takes minutes. A model that fails does not hold the others up.
func (a *Agent) move(work context.Context, unload bool, names []string, do func(context.Context, string) error) {
	done := make(chan moved, 1)
	a.pause.done = done
	names = slices.Clone(names)
	a.tasks.Go(func() {
		var wrong []error
		for _, name := range names {
			// What was deleted is out of memory for good.
			if err := do(work, name); err != nil && !engine.IsMissing(err) {
				wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
			}
		}
		done <- moved{unload, errors.Join(wrong...)}
	})
}

// collect takes in how the last move ended.
func (p *pause) collect(a *Agent) {
	select {
	case m := <-p.done:
		p.done, p.failed = nil, time.Time{}
		p.idle = 0 // the engine was asked before the move ended: what is warm now, the next heartbeats tell
		switch {
		case m.err != nil:
			p.failed = time.Now()
			a.Log.Warn("the engine did not move its models, trying again", "error", m.err.Error())
		case m.unloaded:
			p.unloaded = true
		default:
			p.reload = nil
		}
	default:
	}
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
