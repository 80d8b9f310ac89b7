package nodeagent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
)

// hiccup is how long the engine may be silent before the gateway is told to send nothing: a busy engine misses a question
// now and then, and that must not take its models away.
const hiccup = 10 * time.Second

// observeTimeout bounds all questions of one heartbeat, so that it and the heartbeat's own call end before the gateway
// takes the node for dead.
const observeTimeout = 4 * time.Second

// view is what the agent sees of its engine.
type view struct {
	// served are the engine's models that the node reports, and models how it reports them: those of the last answer.
	served  []engine.Model
	models  []*ktmsv1.NodeModel
	missing []string
	load    engine.Load
	// err is why the engine did not answer the last time, and since when it is silent.
	err   error
	since time.Time
	// gone says that the engine serves nothing now.
	gone bool
}

// observe asks the engine.
func (a *Agent) observe(ctx context.Context) {
	var (
		models        []engine.Model
		load          engine.Load
		err, loadFail error
		asking        sync.WaitGroup
	)
	limited, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	asking.Go(func() { models, err = a.Engine.Models(limited) })
	asking.Go(func() { load, loadFail = a.Engine.Load(limited) })
	asking.Wait()
	if ctx.Err() != nil {
		return
	}
	if loadFail != nil {
		load = engine.Load{}
		a.Log.Debug("the engine does not tell its load", "error", loadFail.Error())
	}
	a.view.load, a.view.err = load, err
	if err != nil {
		if a.view.since.IsZero() {
			a.view.since = time.Now()
		}
		_, notReady := errors.AsType[*engine.NotReadyError](err)
		gone := notReady || time.Since(a.view.since) >= hiccup || errors.Is(err, syscall.ECONNREFUSED)
		if gone && !a.view.gone {
			a.Log.Warn("the engine cannot serve, so the node takes no requests", "error", err.Error())
		}
		a.view.gone = gone
		return
	}
	if a.view.gone {
		a.Log.Info("the engine serves again")
	}
	a.view.since, a.view.gone = time.Time{}, false
	reported, missing := a.Selection.Apply(models)
	if len(missing) > 0 && !slices.Equal(missing, a.view.missing) {
		a.Log.Warn("the engine lacks models that --only-model or --judge-model name", "missing", missing)
	}
	if len(reported) == 0 && len(a.view.models) > 0 {
		a.Log.Warn("the engine has no model to report any more, so the node takes no requests")
	}
	a.view.models, a.view.missing = reported, missing
	a.view.served = slices.DeleteFunc(models, func(m engine.Model) bool {
		return !slices.ContainsFunc(reported, func(r *ktmsv1.NodeModel) bool { return m.Is(r.GetId()) })
	})
}

// maxTrouble bounds what the gateway is told of a trouble, in characters: its registry takes 500.
const maxTrouble = 400

// trouble is why the node can serve nothing at the moment; empty where it can. What it has not begun to answer then goes
// elsewhere.
func (a *Agent) trouble() string {
	text := ""
	switch {
	case a.view.gone:
		text = "the engine cannot serve: " + a.view.err.Error()
	case len(a.view.models) == 0:
		text = "the engine has no model to report" + a.view.missingText()
	case a.address() == "":
		text = "the tunnel is down"
	}
	if letters := []rune(text); len(letters) > maxTrouble {
		text = string(letters[:maxTrouble]) + "…"
	}
	return text
}

func (v *view) names() []string {
	names := make([]string, 0, len(v.models))
	for _, m := range v.models {
		names = append(names, m.GetId())
	}
	return names
}

// unreached are those of the names under which no request comes that are not merely another spelling of a model that requests
// reach.
func (v *view) unreached(names []string) []string {
	reached := func(name string) bool {
		return slices.ContainsFunc(v.served, func(m engine.Model) bool {
			return m.Is(name) && slices.ContainsFunc(v.names(), func(other string) bool { return m.Is(other) && !slices.Contains(names, other) })
		})
	}
	return slices.DeleteFunc(slices.Clone(names), reached)
}

func (v *view) missingText() string {
	if len(v.missing) == 0 {
		return ""
	}
	return ": it lacks " + strings.Join(v.missing, ", ")
}
